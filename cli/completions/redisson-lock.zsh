#compdef redisson-lock

autoload -U is-at-least

_redisson-lock() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_redisson-lock_commands" \
"*::: :->redisson-lock" \
&& ret=0
    case $state in
    (redisson-lock)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-command-$line[1]:"
        case $line[1] in
            (run)
_arguments "${_arguments_options[@]}" : \
'--kind=[The kind of lock. It must be the kind that the other programs use for the name]:KIND:((lock\:"One holder at a time\: Java'\''s getLock"
fair\:"In order of arrival\: Java'\''s getFairLock"
fenced\:"With a fencing token\: Java'\''s getFencedLock"
spin\:"Without messages; waiters poll\: Java'\''s getSpinLock"
read\:"The read side of Java'\''s getReadWriteLock"
write\:"The write side of Java'\''s getReadWriteLock"
value\:"The classic Redis lock, SET NX"))' \
'-w+[Wait at most this long for a busy lock; fractions are allowed. Default\: without a limit]:SECONDS:_default' \
'--wait=[Wait at most this long for a busy lock; fractions are allowed. Default\: without a limit]:SECONDS:_default' \
'--lease=[The lease, which is renewed while the lock is held. Default\: 30, or the lockWatchdogTimeout of --config]:SECONDS:_default' \
'(--max-hold)--min-hold=[Keep the lock busy for at least this long, even if it is released earlier]:SECONDS:_default' \
'--max-hold=[End the hold after this long. The hold is then lost]:SECONDS:_default' \
'(--limit)--owner=[A name for the holder, which \`inspect\` shows. A unique suffix is added to it]:NAME:_default' \
'(--kind -s --shared -x --exclusive --min-hold --max-hold)--limit=[Allow this many holders at a time, by an expirable semaphore in place of a lock]:N:_default' \
'--on-lost=[The action on the program if the lock is lost while it runs]:ACTION:((term\:"It gets SIGTERM, and SIGKILL after --kill-after"
kill\:"It gets SIGKILL"
warn\:"It continues, and a message says so"))' \
'--kill-after=[The time between the SIGTERM and the SIGKILL that end the program]:SECONDS:_default' \
'-E+[The code if the lock stays busy. Default\: REDISSON_LOCK_BUSY_CODE, then 75]:CODE:_default' \
'--conflict-exit-code=[The code if the lock stays busy. Default\: REDISSON_LOCK_BUSY_CODE, then 75]:CODE:_default' \
'--busy-code=[The code if the lock stays busy. Default\: REDISSON_LOCK_BUSY_CODE, then 75]:CODE:_default' \
'--unavailable-code=[The code if Redis is unreachable. Default\: REDISSON_LOCK_UNAVAILABLE_CODE, then 69]:CODE:_default' \
'--lost-code=[The code if the lock is lost. Default\: REDISSON_LOCK_LOST_CODE, then 70]:CODE:_default' \
'--system-code=[The code if the system or the server refuses something. Default\: REDISSON_LOCK_SYSTEM_CODE, then 71]:CODE:_default' \
'--not-executable-code=[The code if the program cannot be executed. Default\: REDISSON_LOCK_NOT_EXECUTABLE_CODE, then 126]:CODE:_default' \
'--not-found-code=[The code if the program does not exist. Default\: REDISSON_LOCK_NOT_FOUND_CODE, then 127]:CODE:_default' \
'()-c+[Run this command line with /bin/sh, in place of a program]:LINE:_default' \
'()--command=[Run this command line with /bin/sh, in place of a program]:LINE:_default' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--kind -x --exclusive)-s[Take the read side of a read/write lock, as --kind read does]' \
'(--kind -x --exclusive)--shared[Take the read side of a read/write lock, as --kind read does]' \
'(--kind)-x[Take the write side of a read/write lock, as --kind write does]' \
'(--kind)--exclusive[Take the write side of a read/write lock, as --kind write does]' \
'(-w --wait)-n[Do not wait for a busy lock]' \
'(-w --wait)--nonblock[Do not wait for a busy lock]' \
'(-w --wait)--nb[Do not wait for a busy lock]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the lock:_default' \
'*::program -- The program and its arguments:_default' \
&& ret=0
;;
(hold)
_arguments "${_arguments_options[@]}" : \
'--kind=[The kind of lock. It must be the kind that the other programs use for the name]:KIND:((lock\:"One holder at a time\: Java'\''s getLock"
fair\:"In order of arrival\: Java'\''s getFairLock"
fenced\:"With a fencing token\: Java'\''s getFencedLock"
spin\:"Without messages; waiters poll\: Java'\''s getSpinLock"
read\:"The read side of Java'\''s getReadWriteLock"
write\:"The write side of Java'\''s getReadWriteLock"
value\:"The classic Redis lock, SET NX"))' \
'-w+[Wait at most this long for a busy lock; fractions are allowed. Default\: without a limit]:SECONDS:_default' \
'--wait=[Wait at most this long for a busy lock; fractions are allowed. Default\: without a limit]:SECONDS:_default' \
'--lease=[The lease, which is renewed while the lock is held. Default\: 30, or the lockWatchdogTimeout of --config]:SECONDS:_default' \
'(--max-hold)--min-hold=[Keep the lock busy for at least this long, even if it is released earlier]:SECONDS:_default' \
'--max-hold=[End the hold after this long. The hold is then lost]:SECONDS:_default' \
'(--limit)--owner=[A name for the holder, which \`inspect\` shows. A unique suffix is added to it]:NAME:_default' \
'(--kind -s --shared -x --exclusive --min-hold --max-hold)--limit=[Allow this many holders at a time, by an expirable semaphore in place of a lock]:N:_default' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--kind -x --exclusive)-s[Take the read side of a read/write lock, as --kind read does]' \
'(--kind -x --exclusive)--shared[Take the read side of a read/write lock, as --kind read does]' \
'(--kind)-x[Take the write side of a read/write lock, as --kind write does]' \
'(--kind)--exclusive[Take the write side of a read/write lock, as --kind write does]' \
'(-w --wait)-n[Do not wait for a busy lock]' \
'(-w --wait)--nonblock[Do not wait for a busy lock]' \
'(-w --wait)--nb[Do not wait for a busy lock]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the lock:_default' \
&& ret=0
;;
(inspect)
_arguments "${_arguments_options[@]}" : \
'--kind=[The kind of the lock. Default\: the kind that its record shows]:KIND:((lock\:"One holder at a time\: Java'\''s getLock"
fair\:"In order of arrival\: Java'\''s getFairLock"
fenced\:"With a fencing token\: Java'\''s getFencedLock"
spin\:"Without messages; waiters poll\: Java'\''s getSpinLock"
read\:"The read side of Java'\''s getReadWriteLock"
write\:"The write side of Java'\''s getReadWriteLock"
value\:"The classic Redis lock, SET NX"))' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--kind -x --exclusive)-s[The read side of a read/write lock, as --kind read]' \
'(--kind -x --exclusive)--shared[The read side of a read/write lock, as --kind read]' \
'(--kind)-x[The write side of a read/write lock, as --kind write]' \
'(--kind)--exclusive[The write side of a read/write lock, as --kind write]' \
'--json[Write one line of JSON]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the lock:_default' \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'-a[Also show integers, which may be semaphores or latches, and short strings with an expiry, which may be value locks]' \
'--all[Also show integers, which may be semaphores or latches, and short strings with an expiry, which may be value locks]' \
'--json[Write one line of JSON for each]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::pattern -- Show only names that match this glob, such as '\''orders\:*'\''. It is the pattern of Redis'\''s SCAN:_default' \
&& ret=0
;;
(force-unlock)
_arguments "${_arguments_options[@]}" : \
'--kind=[The kind of the lock. Default\: the kind that its record shows]:KIND:((lock\:"One holder at a time\: Java'\''s getLock"
fair\:"In order of arrival\: Java'\''s getFairLock"
fenced\:"With a fencing token\: Java'\''s getFencedLock"
spin\:"Without messages; waiters poll\: Java'\''s getSpinLock"
read\:"The read side of Java'\''s getReadWriteLock"
write\:"The write side of Java'\''s getReadWriteLock"
value\:"The classic Redis lock, SET NX"))' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--kind -x --exclusive)-s[The read side of a read/write lock, as --kind read]' \
'(--kind -x --exclusive)--shared[The read side of a read/write lock, as --kind read]' \
'(--kind)-x[The write side of a read/write lock, as --kind write]' \
'(--kind)--exclusive[The write side of a read/write lock, as --kind write]' \
'-y[Do not ask]' \
'--yes[Do not ask]' \
'--json[Write one line of JSON]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the lock:_default' \
&& ret=0
;;
(semaphore)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
":: :_redisson-lock__subcmd__semaphore_commands" \
"*::: :->semaphore" \
&& ret=0

    case $state in
    (semaphore)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-semaphore-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the semaphore:_default' \
':permits -- The number of permits:_default' \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'--json[Write one line of JSON]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the semaphore:_default' \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
'--lease=[How long the permit lasts. Nothing renews it]:SECONDS:_default' \
'-w+[Wait at most this long for a permit. Default\: without a limit]:SECONDS:_default' \
'--wait=[Wait at most this long for a permit. Default\: without a limit]:SECONDS:_default' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(-w --wait)-n[Do not wait for a permit]' \
'(-w --wait)--nonblock[Do not wait for a permit]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the semaphore:_default' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the semaphore:_default' \
':id -- The id of the permit:_default' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_redisson-lock__subcmd__semaphore__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-semaphore-help-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
;;
(plain-semaphore)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
":: :_redisson-lock__subcmd__plain-semaphore_commands" \
"*::: :->plain-semaphore" \
&& ret=0

    case $state in
    (plain-semaphore)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-plain-semaphore-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the semaphore:_default' \
':permits -- The number of permits:_default' \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the semaphore:_default' \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
'--permits=[The number of permits, which are acquired at once]:N:_default' \
'-w+[Wait at most this long for permits. Default\: without a limit]:SECONDS:_default' \
'--wait=[Wait at most this long for permits. Default\: without a limit]:SECONDS:_default' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(-w --wait)-n[Do not wait for permits]' \
'(-w --wait)--nonblock[Do not wait for permits]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the semaphore:_default' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'--permits=[The number of permits]:N:_default' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the semaphore:_default' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_redisson-lock__subcmd__plain-semaphore__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-plain-semaphore-help-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
;;
(latch)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
":: :_redisson-lock__subcmd__latch_commands" \
"*::: :->latch" \
&& ret=0

    case $state in
    (latch)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-latch-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the latch:_default' \
':count -- The count:_default' \
&& ret=0
;;
(count-down)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the latch:_default' \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the latch:_default' \
&& ret=0
;;
(wait)
_arguments "${_arguments_options[@]}" : \
'-w+[Wait at most this long. Default\: without a limit]:SECONDS:_default' \
'--wait=[Wait at most this long. Default\: without a limit]:SECONDS:_default' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of the latch:_default' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_redisson-lock__subcmd__latch__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-latch-help-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(count-down)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(wait)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
;;
(watch)
_arguments "${_arguments_options[@]}" : \
'--interval=[How often to read a lock whose release is not published]:SECONDS:_default' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'--json[Write one line of JSON for each event]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The name of a lock, or a glob with *, ? or \[, such as '\''orders\:*'\'':_default' \
&& ret=0
;;
(top)
_arguments "${_arguments_options[@]}" : \
'--interval=[The time from the end of a reading to the next one. A reading visits every key of the database once, by SCAN]:SECONDS:_default' \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'-a[Also show integers, which may be semaphores or latches, and short strings with an expiry, which may be value locks]' \
'--all[Also show integers, which may be semaphores or latches, and short strings with an expiry, which may be value locks]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::pattern -- Show only names that match this glob, such as '\''orders\:*'\''. It is the pattern of Redis'\''s SCAN:_default' \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'--json[Write one line of JSON for each server]' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
'(--config)--url=[The servers\: redis\://, rediss\://, redis-sentinel\://, redis-cluster\:// or redis-replicated\:// and an address]:URL:_default' \
'--config=[Read the servers and credentials from this Redisson configuration file, YAML or JSON]:FILE:_files' \
'--user=[The user in Redis'\''s access control list. Default\: the default user]:NAME:_default' \
'--password-file=[Read the password from the first line of this file. Default\: the variable REDISSON_LOCK_PASSWORD, then none]:FILE:_files' \
'--cacert=[Trust the certificate authorities in this PEM file, in place of the system'\''s]:FILE:_files' \
'--cert=[The client'\''s certificate chain, a PEM file]:FILE:_files' \
'--key=[The private key of --cert, a PEM file]:FILE:_files' \
'--sni=[The name in the server'\''s certificate. Default\: the host of the URL]:HOST:_default' \
'--timeout=[Limit the time to connect, and the time of each request to Redis. Default\: 5, or the timeouts of --config]:SECONDS:_default' \
'(--cacert)--insecure[Accept any certificate. An attacker on the network can then read the traffic and the password]' \
'-v[Report on standard error what is waited for, and who holds it]' \
'--verbose[Report on standard error what is waited for, and who holds it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':shell -- The shell:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_redisson-lock__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-help-command-$line[1]:"
        case $line[1] in
            (run)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(hold)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(inspect)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(force-unlock)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(semaphore)
_arguments "${_arguments_options[@]}" : \
":: :_redisson-lock__subcmd__help__subcmd__semaphore_commands" \
"*::: :->semaphore" \
&& ret=0

    case $state in
    (semaphore)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-help-semaphore-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
(plain-semaphore)
_arguments "${_arguments_options[@]}" : \
":: :_redisson-lock__subcmd__help__subcmd__plain-semaphore_commands" \
"*::: :->plain-semaphore" \
&& ret=0

    case $state in
    (plain-semaphore)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-help-plain-semaphore-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
(latch)
_arguments "${_arguments_options[@]}" : \
":: :_redisson-lock__subcmd__help__subcmd__latch_commands" \
"*::: :->latch" \
&& ret=0

    case $state in
    (latch)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:redisson-lock-help-latch-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(count-down)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(count)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(wait)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
(watch)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(top)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
}

(( $+functions[_redisson-lock_commands] )) ||
_redisson-lock_commands() {
    local commands; commands=(
'run:Hold a lock while a program runs' \
'hold:Hold a lock until standard input ends or a signal comes' \
'inspect:Show the kind of a lock, who holds it, how long the lease lasts, and who waits' \
'list:Show the locks, semaphores and latches that there are now' \
'force-unlock:Release a lock, whoever holds it, and wake its waiters' \
'semaphore:Create, count, acquire and release the permits of a semaphore with leases' \
'plain-semaphore:Create, count, acquire and release the permits of a semaphore without leases' \
'latch:Create, count down and wait for a count-down latch' \
'watch:Show acquisitions, releases and losses as they happen' \
'top:Show the locks, their holders and their waiters in a live table on the full screen' \
'doctor:Examine what the server permits and how it is set up, and what that means for locks' \
'completions:Write the completions of a shell to standard output' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'redisson-lock commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__completions_commands] )) ||
_redisson-lock__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock completions commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__doctor_commands] )) ||
_redisson-lock__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock doctor commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__force-unlock_commands] )) ||
_redisson-lock__subcmd__force-unlock_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock force-unlock commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help_commands] )) ||
_redisson-lock__subcmd__help_commands() {
    local commands; commands=(
'run:Hold a lock while a program runs' \
'hold:Hold a lock until standard input ends or a signal comes' \
'inspect:Show the kind of a lock, who holds it, how long the lease lasts, and who waits' \
'list:Show the locks, semaphores and latches that there are now' \
'force-unlock:Release a lock, whoever holds it, and wake its waiters' \
'semaphore:Create, count, acquire and release the permits of a semaphore with leases' \
'plain-semaphore:Create, count, acquire and release the permits of a semaphore without leases' \
'latch:Create, count down and wait for a count-down latch' \
'watch:Show acquisitions, releases and losses as they happen' \
'top:Show the locks, their holders and their waiters in a live table on the full screen' \
'doctor:Examine what the server permits and how it is set up, and what that means for locks' \
'completions:Write the completions of a shell to standard output' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'redisson-lock help commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__completions_commands] )) ||
_redisson-lock__subcmd__help__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help completions commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__doctor_commands] )) ||
_redisson-lock__subcmd__help__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help doctor commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__force-unlock_commands] )) ||
_redisson-lock__subcmd__help__subcmd__force-unlock_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help force-unlock commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__help_commands] )) ||
_redisson-lock__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help help commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__hold_commands] )) ||
_redisson-lock__subcmd__help__subcmd__hold_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help hold commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__inspect_commands] )) ||
_redisson-lock__subcmd__help__subcmd__inspect_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help inspect commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__latch_commands] )) ||
_redisson-lock__subcmd__help__subcmd__latch_commands() {
    local commands; commands=(
'create:Create the latch with this count, unless it exists' \
'count-down:Count the latch down by one' \
'count:Write the count, which is 0 if the latch is open' \
'wait:Wait until the latch is open. A latch that does not exist is open' \
    )
    _describe -t commands 'redisson-lock help latch commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__latch__subcmd__count_commands] )) ||
_redisson-lock__subcmd__help__subcmd__latch__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help latch count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__latch__subcmd__count-down_commands] )) ||
_redisson-lock__subcmd__help__subcmd__latch__subcmd__count-down_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help latch count-down commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__latch__subcmd__create_commands] )) ||
_redisson-lock__subcmd__help__subcmd__latch__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help latch create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__latch__subcmd__wait_commands] )) ||
_redisson-lock__subcmd__help__subcmd__latch__subcmd__wait_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help latch wait commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__list_commands] )) ||
_redisson-lock__subcmd__help__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help list commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__plain-semaphore_commands] )) ||
_redisson-lock__subcmd__help__subcmd__plain-semaphore_commands() {
    local commands; commands=(
'create:Create the semaphore with this many permits, unless it exists' \
'count:Write the number of free permits. A semaphore that does not exist has none' \
'acquire:Acquire permits. They have no lease, so they stay taken until somebody releases them' \
'release:Release permits. Nothing checks who acquired them' \
    )
    _describe -t commands 'redisson-lock help plain-semaphore commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__plain-semaphore__subcmd__acquire_commands] )) ||
_redisson-lock__subcmd__help__subcmd__plain-semaphore__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help plain-semaphore acquire commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__plain-semaphore__subcmd__count_commands] )) ||
_redisson-lock__subcmd__help__subcmd__plain-semaphore__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help plain-semaphore count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__plain-semaphore__subcmd__create_commands] )) ||
_redisson-lock__subcmd__help__subcmd__plain-semaphore__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help plain-semaphore create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__plain-semaphore__subcmd__release_commands] )) ||
_redisson-lock__subcmd__help__subcmd__plain-semaphore__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help plain-semaphore release commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__run_commands] )) ||
_redisson-lock__subcmd__help__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help run commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__semaphore_commands] )) ||
_redisson-lock__subcmd__help__subcmd__semaphore_commands() {
    local commands; commands=(
'create:Create the semaphore with this many permits, unless it exists' \
'count:Write the numbers of free, taken and all permits' \
'acquire:Acquire a permit, and write its id. The permit outlives this command, until its lease ends' \
'release:Release a permit by the id that \`acquire\` wrote' \
    )
    _describe -t commands 'redisson-lock help semaphore commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__semaphore__subcmd__acquire_commands] )) ||
_redisson-lock__subcmd__help__subcmd__semaphore__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help semaphore acquire commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__semaphore__subcmd__count_commands] )) ||
_redisson-lock__subcmd__help__subcmd__semaphore__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help semaphore count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__semaphore__subcmd__create_commands] )) ||
_redisson-lock__subcmd__help__subcmd__semaphore__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help semaphore create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__semaphore__subcmd__release_commands] )) ||
_redisson-lock__subcmd__help__subcmd__semaphore__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help semaphore release commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__top_commands] )) ||
_redisson-lock__subcmd__help__subcmd__top_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help top commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__help__subcmd__watch_commands] )) ||
_redisson-lock__subcmd__help__subcmd__watch_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock help watch commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__hold_commands] )) ||
_redisson-lock__subcmd__hold_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock hold commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__inspect_commands] )) ||
_redisson-lock__subcmd__inspect_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock inspect commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch_commands] )) ||
_redisson-lock__subcmd__latch_commands() {
    local commands; commands=(
'create:Create the latch with this count, unless it exists' \
'count-down:Count the latch down by one' \
'count:Write the count, which is 0 if the latch is open' \
'wait:Wait until the latch is open. A latch that does not exist is open' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'redisson-lock latch commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__count_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__count-down_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__count-down_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch count-down commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__create_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__help_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__help_commands() {
    local commands; commands=(
'create:Create the latch with this count, unless it exists' \
'count-down:Count the latch down by one' \
'count:Write the count, which is 0 if the latch is open' \
'wait:Wait until the latch is open. A latch that does not exist is open' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'redisson-lock latch help commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__help__subcmd__count_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__help__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch help count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__help__subcmd__count-down_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__help__subcmd__count-down_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch help count-down commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__help__subcmd__create_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__help__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch help create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__help__subcmd__help_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch help help commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__help__subcmd__wait_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__help__subcmd__wait_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch help wait commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__latch__subcmd__wait_commands] )) ||
_redisson-lock__subcmd__latch__subcmd__wait_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock latch wait commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__list_commands] )) ||
_redisson-lock__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock list commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore_commands] )) ||
_redisson-lock__subcmd__plain-semaphore_commands() {
    local commands; commands=(
'create:Create the semaphore with this many permits, unless it exists' \
'count:Write the number of free permits. A semaphore that does not exist has none' \
'acquire:Acquire permits. They have no lease, so they stay taken until somebody releases them' \
'release:Release permits. Nothing checks who acquired them' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'redisson-lock plain-semaphore commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__acquire_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore acquire commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__count_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__create_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__help_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__help_commands() {
    local commands; commands=(
'create:Create the semaphore with this many permits, unless it exists' \
'count:Write the number of free permits. A semaphore that does not exist has none' \
'acquire:Acquire permits. They have no lease, so they stay taken until somebody releases them' \
'release:Release permits. Nothing checks who acquired them' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'redisson-lock plain-semaphore help commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__acquire_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore help acquire commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__count_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore help count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__create_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore help create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__help_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore help help commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__release_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__help__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore help release commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__plain-semaphore__subcmd__release_commands] )) ||
_redisson-lock__subcmd__plain-semaphore__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock plain-semaphore release commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__run_commands] )) ||
_redisson-lock__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock run commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore_commands] )) ||
_redisson-lock__subcmd__semaphore_commands() {
    local commands; commands=(
'create:Create the semaphore with this many permits, unless it exists' \
'count:Write the numbers of free, taken and all permits' \
'acquire:Acquire a permit, and write its id. The permit outlives this command, until its lease ends' \
'release:Release a permit by the id that \`acquire\` wrote' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'redisson-lock semaphore commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__acquire_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore acquire commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__count_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__create_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__help_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__help_commands() {
    local commands; commands=(
'create:Create the semaphore with this many permits, unless it exists' \
'count:Write the numbers of free, taken and all permits' \
'acquire:Acquire a permit, and write its id. The permit outlives this command, until its lease ends' \
'release:Release a permit by the id that \`acquire\` wrote' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'redisson-lock semaphore help commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__acquire_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore help acquire commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__count_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__count_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore help count commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__create_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore help create commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__help_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore help help commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__release_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__help__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore help release commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__semaphore__subcmd__release_commands] )) ||
_redisson-lock__subcmd__semaphore__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock semaphore release commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__top_commands] )) ||
_redisson-lock__subcmd__top_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock top commands' commands "$@"
}
(( $+functions[_redisson-lock__subcmd__watch_commands] )) ||
_redisson-lock__subcmd__watch_commands() {
    local commands; commands=()
    _describe -t commands 'redisson-lock watch commands' commands "$@"
}

if [ "$funcstack[1]" = "_redisson-lock" ]; then
    _redisson-lock "$@"
else
    compdef _redisson-lock redisson-lock
fi
