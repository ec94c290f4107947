"""The command line: argv, one core call, rendering."""
