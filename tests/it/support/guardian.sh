# Runs the server given as arguments, and kills it when stdin ends: the process that holds the other end of that pipe is
# gone, in whatever way. The first line of stdout is the server's pid, said before it becomes the server; the rest is
# the server's alone, so that its end is the server's death. A server started with `&` has no stdin: it does not hold
# the pipe. What may come when that process dies must not end this one before its work: SIGPIPE when nobody is left to
# hear the pid, and SIGHUP, which the kernel sends to a group that loses its last outside parent while one of its
# processes, the server, is stopped.
trap '' HUP INT TERM PIPE
directory=$(mktemp -d) && cd "$directory" || exit
sh -c 'echo $$; exec "$@"' server "$@" 2>&1 &
exec >/dev/null 2>&1
read -r _
kill -KILL $!
wait $!
cd / && rm -rf "$directory"
