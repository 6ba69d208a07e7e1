"""A data folder of each format that is read, and the program that makes one."""
