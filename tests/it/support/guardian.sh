# Runs the server given as arguments, and kills it when stdin ends. Then the process at the other end of that pipe is gone,
# for whatever reason. The first line of stdout is the server's pid, printed before the process becomes the server. The
# rest belongs to the server alone, so its end is the server's death. A server started with `&` has no stdin, so it does
# not hold the pipe. The signals that may come when the other process dies must not end this one before its work: SIGPIPE
# if nobody reads the pid any more, and SIGHUP, which the kernel sends to a group that loses its last outside parent while
# one of its processes, the server, is stopped.
trap '' HUP INT TERM PIPE
directory=$(mktemp -d) && cd "$directory" || exit
sh -c 'echo $$; exec "$@"' server "$@" 2>&1 &
exec >/dev/null 2>&1
read -r _
kill -KILL $!
wait $!
cd / && rm -rf "$directory"
