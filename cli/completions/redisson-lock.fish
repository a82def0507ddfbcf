# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_redisson_lock_global_optspecs
    string join \n url= config= user= password-file= cacert= cert= key= sni= insecure timeout= v/verbose h/help V/version
end

function __fish_redisson_lock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_redisson_lock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_redisson_lock_using_subcommand
    set -l cmd (__fish_redisson_lock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -s V -l version -d 'Print version'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "run" -d 'Hold a lock while a program runs'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "hold" -d 'Hold a lock until standard input ends or a signal comes'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "inspect" -d 'Show the kind of a lock, who holds it, how long the lease lasts, and who waits'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "list" -d 'Show the locks, semaphores and latches that there are now'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "force-unlock" -d 'Release a lock, whoever holds it, and wake its waiters'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "semaphore" -d 'Create, count, acquire and release the permits of a semaphore with leases'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "plain-semaphore" -d 'Create, count, acquire and release the permits of a semaphore without leases'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "latch" -d 'Create, count down and wait for a count-down latch'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "watch" -d 'Show acquisitions, releases and losses as they happen'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "top" -d 'Show the locks, their holders and their waiters in a live table on the full screen'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "doctor" -d 'Examine what the server permits and how it is set up, and what that means for locks'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "completions" -d 'Write the completions of a shell to standard output'
complete -c redisson-lock -n "__fish_redisson_lock_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l kind -d 'The kind of lock. It must be the kind that the other programs use for the name' -r -f -a "lock\t'One holder at a time: Java\'s getLock'
fair\t'In order of arrival: Java\'s getFairLock'
fenced\t'With a fencing token: Java\'s getFencedLock'
spin\t'Without messages; waiters poll: Java\'s getSpinLock'
read\t'The read side of Java\'s getReadWriteLock'
write\t'The write side of Java\'s getReadWriteLock'
value\t'The classic Redis lock, SET NX'"
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -s w -l wait -d 'Wait at most this long for a busy lock; fractions are allowed. Default: without a limit' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l lease -d 'The lease, which is renewed while the lock is held. Default: 30, or the lockWatchdogTimeout of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l min-hold -d 'Keep the lock busy for at least this long, even if it is released earlier' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l max-hold -d 'End the hold after this long. The hold is then lost' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l owner -d 'A name for the holder, which `inspect` shows. A unique suffix is added to it' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l limit -d 'Allow this many holders at a time, by an expirable semaphore in place of a lock' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l on-lost -d 'The action on the program if the lock is lost while it runs' -r -f -a "term\t'It gets SIGTERM, and SIGKILL after --kill-after'
kill\t'It gets SIGKILL'
warn\t'It continues, and a message says so'"
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l kill-after -d 'The time between the SIGTERM and the SIGKILL that end the program' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -s E -l conflict-exit-code -l busy-code -d 'The code if the lock stays busy. Default: REDISSON_LOCK_BUSY_CODE, then 75' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l unavailable-code -d 'The code if Redis is unreachable. Default: REDISSON_LOCK_UNAVAILABLE_CODE, then 69' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l lost-code -d 'The code if the lock is lost. Default: REDISSON_LOCK_LOST_CODE, then 70' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l system-code -d 'The code if the system or the server refuses something. Default: REDISSON_LOCK_SYSTEM_CODE, then 71' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l not-executable-code -d 'The code if the program cannot be executed. Default: REDISSON_LOCK_NOT_EXECUTABLE_CODE, then 126' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l not-found-code -d 'The code if the program does not exist. Default: REDISSON_LOCK_NOT_FOUND_CODE, then 127' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -s c -l command -d 'Run this command line with /bin/sh, in place of a program' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -s s -l shared -d 'Take the read side of a read/write lock, as --kind read does'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -s x -l exclusive -d 'Take the write side of a read/write lock, as --kind write does'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -s n -l nonblock -l nb -d 'Do not wait for a busy lock'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l kind -d 'The kind of lock. It must be the kind that the other programs use for the name' -r -f -a "lock\t'One holder at a time: Java\'s getLock'
fair\t'In order of arrival: Java\'s getFairLock'
fenced\t'With a fencing token: Java\'s getFencedLock'
spin\t'Without messages; waiters poll: Java\'s getSpinLock'
read\t'The read side of Java\'s getReadWriteLock'
write\t'The write side of Java\'s getReadWriteLock'
value\t'The classic Redis lock, SET NX'"
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -s w -l wait -d 'Wait at most this long for a busy lock; fractions are allowed. Default: without a limit' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l lease -d 'The lease, which is renewed while the lock is held. Default: 30, or the lockWatchdogTimeout of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l min-hold -d 'Keep the lock busy for at least this long, even if it is released earlier' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l max-hold -d 'End the hold after this long. The hold is then lost' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l owner -d 'A name for the holder, which `inspect` shows. A unique suffix is added to it' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l limit -d 'Allow this many holders at a time, by an expirable semaphore in place of a lock' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -s s -l shared -d 'Take the read side of a read/write lock, as --kind read does'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -s x -l exclusive -d 'Take the write side of a read/write lock, as --kind write does'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -s n -l nonblock -l nb -d 'Do not wait for a busy lock'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand hold" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l kind -d 'The kind of the lock. Default: the kind that its record shows' -r -f -a "lock\t'One holder at a time: Java\'s getLock'
fair\t'In order of arrival: Java\'s getFairLock'
fenced\t'With a fencing token: Java\'s getFencedLock'
spin\t'Without messages; waiters poll: Java\'s getSpinLock'
read\t'The read side of Java\'s getReadWriteLock'
write\t'The write side of Java\'s getReadWriteLock'
value\t'The classic Redis lock, SET NX'"
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -s s -l shared -d 'The read side of a read/write lock, as --kind read'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -s x -l exclusive -d 'The write side of a read/write lock, as --kind write'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l json -d 'Write one line of JSON'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand inspect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -s a -l all -d 'Also show integers, which may be semaphores or latches, and short strings with an expiry, which may be value locks'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l json -d 'Write one line of JSON for each'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l kind -d 'The kind of the lock. Default: the kind that its record shows' -r -f -a "lock\t'One holder at a time: Java\'s getLock'
fair\t'In order of arrival: Java\'s getFairLock'
fenced\t'With a fencing token: Java\'s getFencedLock'
spin\t'Without messages; waiters poll: Java\'s getSpinLock'
read\t'The read side of Java\'s getReadWriteLock'
write\t'The write side of Java\'s getReadWriteLock'
value\t'The classic Redis lock, SET NX'"
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -s s -l shared -d 'The read side of a read/write lock, as --kind read'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -s x -l exclusive -d 'The write side of a read/write lock, as --kind write'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -s y -l yes -d 'Do not ask'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l json -d 'Write one line of JSON'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand force-unlock" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "create" -d 'Create the semaphore with this many permits, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "count" -d 'Write the numbers of free, taken and all permits'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "acquire" -d 'Acquire a permit, and write its id. The permit outlives this command, until its lease ends'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "release" -d 'Release a permit by the id that `acquire` wrote'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l json -d 'Write one line of JSON'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from count" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l lease -d 'How long the permit lasts. Nothing renews it' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -s w -l wait -d 'Wait at most this long for a permit. Default: without a limit' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -s n -l nonblock -d 'Do not wait for a permit'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from acquire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from help" -f -a "create" -d 'Create the semaphore with this many permits, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from help" -f -a "count" -d 'Write the numbers of free, taken and all permits'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from help" -f -a "acquire" -d 'Acquire a permit, and write its id. The permit outlives this command, until its lease ends'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from help" -f -a "release" -d 'Release a permit by the id that `acquire` wrote'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand semaphore; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "create" -d 'Create the semaphore with this many permits, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "count" -d 'Write the number of free permits. A semaphore that does not exist has none'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "acquire" -d 'Acquire permits. They have no lease, so they stay taken until somebody releases them'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "release" -d 'Release permits. Nothing checks who acquired them'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and not __fish_seen_subcommand_from create count acquire release help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from count" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l permits -d 'The number of permits, which are acquired at once' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -s w -l wait -d 'Wait at most this long for permits. Default: without a limit' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -s n -l nonblock -d 'Do not wait for permits'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from acquire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l permits -d 'The number of permits' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from help" -f -a "create" -d 'Create the semaphore with this many permits, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from help" -f -a "count" -d 'Write the number of free permits. A semaphore that does not exist has none'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from help" -f -a "acquire" -d 'Acquire permits. They have no lease, so they stay taken until somebody releases them'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from help" -f -a "release" -d 'Release permits. Nothing checks who acquired them'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand plain-semaphore; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -f -a "create" -d 'Create the latch with this count, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -f -a "count-down" -d 'Count the latch down by one'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -f -a "count" -d 'Write the count, which is 0 if the latch is open'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -f -a "wait" -d 'Wait until the latch is open. A latch that does not exist is open'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and not __fish_seen_subcommand_from create count-down count wait help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count-down" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from count" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -s w -l wait -d 'Wait at most this long. Default: without a limit' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from wait" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from help" -f -a "create" -d 'Create the latch with this count, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from help" -f -a "count-down" -d 'Count the latch down by one'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from help" -f -a "count" -d 'Write the count, which is 0 if the latch is open'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from help" -f -a "wait" -d 'Wait until the latch is open. A latch that does not exist is open'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand latch; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l interval -d 'How often to read a lock whose release is not published' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l json -d 'Write one line of JSON for each event'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l interval -d 'The time from the end of a reading to the next one. A reading visits every key of the database once, by SCAN' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -s a -l all -d 'Also show integers, which may be semaphores or latches, and short strings with an expiry, which may be value locks'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l json -d 'Write one line of JSON for each server'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l url -d 'The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l config -d 'Read the servers and credentials from this Redisson configuration file, YAML or JSON' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l user -d 'The user in Redis\'s access control list. Default: the default user' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l password-file -d 'Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l cacert -d 'Trust the certificate authorities in this PEM file, in place of the system\'s' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l cert -d 'The client\'s certificate chain, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l key -d 'The private key of --cert, a PEM file' -r -F
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l sni -d 'The name in the server\'s certificate. Default: the host of the URL' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l timeout -d 'Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config' -r
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -l insecure -d 'Accept any certificate. An attacker on the network can then read the traffic and the password'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -s v -l verbose -d 'Report on standard error what is waited for, and who holds it'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "run" -d 'Hold a lock while a program runs'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "hold" -d 'Hold a lock until standard input ends or a signal comes'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "inspect" -d 'Show the kind of a lock, who holds it, how long the lease lasts, and who waits'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "list" -d 'Show the locks, semaphores and latches that there are now'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "force-unlock" -d 'Release a lock, whoever holds it, and wake its waiters'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "semaphore" -d 'Create, count, acquire and release the permits of a semaphore with leases'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "plain-semaphore" -d 'Create, count, acquire and release the permits of a semaphore without leases'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "latch" -d 'Create, count down and wait for a count-down latch'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "watch" -d 'Show acquisitions, releases and losses as they happen'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "top" -d 'Show the locks, their holders and their waiters in a live table on the full screen'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "doctor" -d 'Examine what the server permits and how it is set up, and what that means for locks'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "completions" -d 'Write the completions of a shell to standard output'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and not __fish_seen_subcommand_from run hold inspect list force-unlock semaphore plain-semaphore latch watch top doctor completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from semaphore" -f -a "create" -d 'Create the semaphore with this many permits, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from semaphore" -f -a "count" -d 'Write the numbers of free, taken and all permits'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from semaphore" -f -a "acquire" -d 'Acquire a permit, and write its id. The permit outlives this command, until its lease ends'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from semaphore" -f -a "release" -d 'Release a permit by the id that `acquire` wrote'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from plain-semaphore" -f -a "create" -d 'Create the semaphore with this many permits, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from plain-semaphore" -f -a "count" -d 'Write the number of free permits. A semaphore that does not exist has none'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from plain-semaphore" -f -a "acquire" -d 'Acquire permits. They have no lease, so they stay taken until somebody releases them'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from plain-semaphore" -f -a "release" -d 'Release permits. Nothing checks who acquired them'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from latch" -f -a "create" -d 'Create the latch with this count, unless it exists'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from latch" -f -a "count-down" -d 'Count the latch down by one'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from latch" -f -a "count" -d 'Write the count, which is 0 if the latch is open'
complete -c redisson-lock -n "__fish_redisson_lock_using_subcommand help; and __fish_seen_subcommand_from latch" -f -a "wait" -d 'Wait until the latch is open. A latch that does not exist is open'
