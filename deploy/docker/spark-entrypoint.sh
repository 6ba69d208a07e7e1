#!/bin/bash
# Spark in a container: `master`, `worker MASTER…`, and `driver …` and `executor`, with which Spark on Kubernetes starts
# a container and which it gives these variables.
set -euo pipefail

role="${1:?master, worker, driver or executor}"
shift

case "$role" in
master)
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master "$@"
    ;;
worker)
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker --work-dir /tmp/spark-work "$@"
    ;;
driver)
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: each is one option, which may have spaces in it.
    options=()
    number=0
    while name="SPARK_JAVA_OPT_$number" && [ -n "${!name+x}" ]; do
        options+=("${!name}")
        number=$((number + 1))
    done
    exec "$JAVA_HOME/bin/java" ${options[@]+"${options[@]}"} \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    echo "spark-entrypoint.sh: $role is none of master, worker, driver and executor" >&2
    exit 2
    ;;
esac
