import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/**
 * pulsar-admin as one process for many commands, because its start takes longer than most commands.
 *
 * <p>A line of input is the arguments of one command, each in base64, between spaces. The response line is the
 * exit code, standard output and standard error, the latter two in base64.
 */
public final class AdminLines extends PulsarAdminTool {
    private AdminLines(Properties properties) throws Exception {
        super(properties);
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        // The tool keeps the first streams it finds, so these are reused and emptied after each command.
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new Lasting(out));
        System.setErr(new Lasting(err));
        Properties properties = new Properties();
        properties.setProperty("webServiceUrl", "http://127.0.0.1:1/"); // every command sets its own
        AdminLines tool = new AdminLines(properties);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("ready");
        answers.flush();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int code = tool.answer(line.split(" "));
            System.out.flush();
            System.err.flush();
            answers.println(code + " " + taken(out) + " " + taken(err));
            answers.flush();
        }
        System.exit(0);
    }

    private int answer(String[] words) {
        String[] arguments = new String[words.length];
        for (int i = 0; i < words.length; i++) {
            arguments[i] = new String(Base64.getDecoder().decode(words[i]), StandardCharsets.UTF_8);
        }
        try {
            return run(arguments) ? 0 : 1;
        } catch (Throwable problem) {
            problem.printStackTrace();
            return 1;
        }
    }

    /** Some commands close their output stream. */
    private static final class Lasting extends PrintStream {
        Lasting(ByteArrayOutputStream stream) {
            super(stream, true, StandardCharsets.UTF_8);
        }

        @Override
        public void close() {
            flush();
        }
    }

    private static String taken(ByteArrayOutputStream stream) {
        String text = Base64.getEncoder().encodeToString(stream.toByteArray());
        stream.reset();
        return text.isEmpty() ? "-" : text;
    }
}
