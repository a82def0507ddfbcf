import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.invoke.MethodType;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.StringJoiner;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.LogManager;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.Codec;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.MasterSlaveServersConfig;
import org.redisson.config.ReplicatedServersConfig;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.SingleServerConfig;

/**
 * A real Redisson that takes commands on stdin, for tests of this project's Rust client against Redisson.
 *
 * <pre>
 * request   &lt;id&gt; &lt;client&gt; &lt;thread&gt; &lt;command&gt; &lt;args...&gt;
 * answers   &lt;id&gt; at &lt;ns&gt;                       the command starts now
 *           &lt;id&gt; ok &lt;ns&gt; &lt;value...&gt;            it returned
 *           &lt;id&gt; err &lt;ns&gt; &lt;class&gt; &lt;message&gt;    it threw
 * unasked   * &lt;client&gt; &lt;thread&gt; waiting|holding|released &lt;ns&gt; &lt;counter or -&gt;
 * </pre>
 *
 * Each (client, thread) pair is one Java thread, which executes its requests in order. To Redisson the thread is the
 * owner. Times are CLOCK_MONOTONIC, so that other processes on this machine can compare them with their own. Names of
 * locks and keys are base64 of their UTF-8. The program exits without clean-up when stdin closes, so that a killed test
 * leaves no process behind.
 *
 * <p>One source serves Redisson 3.3.2 to 4.7.0, so methods that only some versions have are called by reflection.
 */
public final class Peer {
    interface Kind {
        Object open(RedissonClient client, String name) throws Exception;
    }

    interface Command {
        Object run(Worker worker, Args args) throws Exception;
    }

    /** RLock methods have their own commands. "call" invokes a method of any other object. */
    static final Map<String, Kind> KINDS = Map.ofEntries(
            Map.entry("plain", RedissonClient::getLock),
            Map.entry("spin", (client, name) -> call(client, "getSpinLock", name)),
            Map.entry("fair", RedissonClient::getFairLock),
            Map.entry("read", (client, name) -> client.getReadWriteLock(name).readLock()),
            Map.entry("write", (client, name) -> client.getReadWriteLock(name).writeLock()),
            Map.entry("fenced", (client, name) -> call(client, "getFencedLock", name)),
            Map.entry("nonreentrant", (client, name) -> call(client, "getNonReentrantLock", name)),
            Map.entry("nonreentrantfair", (client, name) -> call(client, "getNonReentrantFairLock", name)),
            Map.entry("semaphore", RedissonClient::getSemaphore),
            Map.entry("permitsemaphore", RedissonClient::getPermitExpirableSemaphore),
            Map.entry("latch", RedissonClient::getCountDownLatch));

    /** The method of a map that returns the object of a kind for one of its keys. */
    static final Map<String, String> OF_AN_ENTRY = Map.of(
            "plain", "getLock",
            "fair", "getFairLock",
            "read", "getReadWriteLock",
            "write", "getReadWriteLock",
            "semaphore", "getSemaphore",
            "permitsemaphore", "getPermitExpirableSemaphore",
            "latch", "getCountDownLatch");

    static final Map<String, Command> COMMANDS = Map.ofEntries(
            Map.entry("connect", (w, a) -> w.client.connect(a)),
            Map.entry("shutdown", (w, a) -> w.client.shutdown()),
            // In the format that Redisson writes to a file.
            Map.entry("configuration", (w, a) -> Base64.getEncoder().encodeToString(
                    w.client.redisson().getConfig().toYAML().getBytes(StandardCharsets.UTF_8))),
            Map.entry("events", (w, a) -> w.client.events = a.text().equals("on")),
            Map.entry("lock", Peer::lock),
            Map.entry("tryLock", Peer::tryLock),
            Map.entry("unlock", (w, a) -> { w.lock(a).unlock(); return ""; }),
            // Returns nothing in 3.3.2.
            Map.entry("forceUnlock", (w, a) -> call(w.lock(a), "forceUnlock")),
            Map.entry("isLocked", (w, a) -> w.lock(a).isLocked()),
            Map.entry("isHeld", (w, a) -> w.lock(a).isHeldByCurrentThread()),
            Map.entry("holdCount", (w, a) -> w.lock(a).getHoldCount()),
            Map.entry("remainTtl", (w, a) -> callIfThere(w.lock(a), "remainTimeToLive")),
            Map.entry("owner", (w, a) -> threadId()),
            Map.entry("asleep", Peer::asleep),
            Map.entry("combine", Peer::combine),
            Map.entry("group", Peer::group),
            Map.entry("ofEntry", Peer::ofEntry),
            Map.entry("methods", Peer::methods),
            Map.entry("call", (w, a) -> call(w.object(a), a.text(), a.values())),
            Map.entry("loop", Peer::loop),
            Map.entry("contend", Peer::contend),
            Map.entry("stopContending", (w, a) -> w.client.stopping = true));

    /**
     * Returns once the thread of this name waits for the message of a release. Redisson lets it wait at a semaphore. A message
     * that comes earlier may not count.
     */
    static String asleep(Worker worker, Args args) throws Exception {
        String name = args.text();
        Worker other = worker.client.worker(name);
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20); System.nanoTime() < end; Thread.sleep(1)) {
            if (other.isAtSemaphore()) {
                return "";
            }
        }
        throw new IllegalStateException("the thread " + name + " waits for no message");
    }

    static final Map<String, Client> CLIENTS = new ConcurrentHashMap<>();
    static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws IOException {
        // Netty logs here when slf4j discards its log.
        LogManager.getLogManager().reset();
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            // Keeps an empty last word, because a name may be empty.
            String[] words = line.split(" ", -1);
            if (words.length < 4) {
                emit(words[0] + " err " + System.nanoTime() + " IllegalArgumentException not a request");
                continue;
            }
            Worker worker = CLIENTS.computeIfAbsent(words[1], Client::new).worker(words[2]);
            try {
                worker.thread.execute(() -> serve(worker, words));
            } catch (RejectedExecutionException shutDown) {
                emit(words[0] + " err " + System.nanoTime() + " IllegalStateException the client is shut down");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static void serve(Worker worker, String[] words) {
        String id = words[0];
        emit(id + " at " + System.nanoTime());
        try {
            Command command = COMMANDS.get(words[3]);
            if (command == null) {
                throw new IllegalArgumentException("no such command: " + words[3]);
            }
            Object value = command.run(worker, new Args(words, 4));
            long now = System.nanoTime();
            emit(id + " ok " + now + " " + shown(value));
        } catch (Throwable thrown) {
            long now = System.nanoTime();
            String message = String.valueOf(thrown.getMessage()).replaceAll("\\s+", " ");
            emit(id + " err " + now + " " + thrown.getClass().getSimpleName() + " " + message);
        }
    }

    static String shown(Object value) {
        return value instanceof Collection<?> several
                ? several.stream().map(String::valueOf).collect(Collectors.joining(","))
                : value == null ? "-" : value.toString();
    }

    /** Writes each line in one call, because the threads of all clients share stdout. */
    static void emit(String line) {
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(bytes, 0, bytes.length);
            OUT.flush();
        }
    }

    static Object lock(Worker worker, Args args) throws Exception {
        RLock lock = worker.lock(args);
        if (args.more()) {
            lock.lock(args.number(), TimeUnit.MILLISECONDS);
        } else {
            lock.lock();
        }
        return "";
    }

    static Object tryLock(Worker worker, Args args) throws Exception {
        RLock lock = worker.lock(args);
        if (!args.more()) {
            return lock.tryLock();
        }
        long wait = args.number();
        return args.more()
                ? lock.tryLock(wait, args.number(), TimeUnit.MILLISECONDS)
                : lock.tryLock(wait, TimeUnit.MILLISECONDS);
    }

    /** Creates a multi or red lock of locks, each with its own client, and stores it under a name. */
    @SuppressWarnings("deprecation")
    static Object combine(Worker worker, Args args) throws Exception {
        String kind = args.text();
        String alias = args.name();
        var members = new ArrayList<RLock>();
        while (args.more()) {
            Client client = CLIENTS.computeIfAbsent(args.text(), Client::new);
            members.add((RLock) open(client.redisson(), args.text(), args.name()));
        }
        RLock[] locks = members.toArray(RLock[]::new);
        worker.keep(kind, alias, kind.equals("red") ? new RedissonRedLock(locks) : new RedissonMultiLock(locks));
        return "";
    }

    /** Creates the lock of some values of a group, and stores it under another name than the group's. */
    static Object group(Worker worker, Args args) throws Exception {
        String alias = args.name();
        String group = args.name();
        var values = new ArrayList<Object>();
        while (args.more()) {
            values.add(args.name());
        }
        worker.keep("group", alias, call(worker.client.redisson(), "getMultiLock", group, values));
        return "";
    }

    /** Opens the object for a key of a map, stores it under its name, and returns the name. */
    static Object ofEntry(Worker worker, Args args) throws Exception {
        String kind = args.text();
        Object map = worker.client.redisson().getMap(args.name());
        String method = OF_AN_ENTRY.get(kind);
        if (method == null) {
            throw new UnsupportedOperationException("a map's key has no " + kind);
        }
        Object object = call(map, method, args.name());
        if (object instanceof RReadWriteLock sides) {
            object = kind.equals("read") ? sides.readLock() : sides.writeLock();
        }
        String name = (String) call(object, "getName");
        worker.keep(kind, name, object);
        return name;
    }

    /** Returns the methods of an interface of Redisson, including inherited ones, each with the interface that declares it. */
    static String methods(Worker worker, Args args) throws Exception {
        return Arrays.stream(Class.forName("org.redisson.api." + args.text()).getMethods())
                .map(method -> method.getDeclaringClass().getSimpleName() + "." + method.getName()
                        + Arrays.stream(method.getParameterTypes())
                                .map(Class::getSimpleName)
                                .collect(Collectors.joining(",", "(", ")")))
                .distinct()
                .sorted()
                .collect(Collectors.joining(" "));
    }

    static Object open(RedissonClient client, String kind, String name) throws Exception {
        Kind known = KINDS.get(kind);
        if (known == null) {
            throw new IllegalArgumentException("no such kind: " + kind);
        }
        return known.open(client, name);
    }

    /** Acquires and releases something. {@code leave} needs the result of {@code enter}. */
    interface Hold {
        Object enter() throws Exception;

        void leave(Object entered) throws Exception;

        static Hold of(Object object) {
            if (object instanceof RSemaphore semaphore) {
                return of(() -> { semaphore.acquire(); return ""; }, entered -> semaphore.release());
            }
            if (object instanceof RPermitExpirableSemaphore permits) {
                return of(permits::acquire, entered -> permits.release((String) entered));
            }
            RLock lock = asLock(object);
            return find(lock.getClass(), "lockAndGetToken") == null
                    ? of(() -> { lock.lock(); return ""; }, entered -> lock.unlock())
                    : of(() -> call(lock, "lockAndGetToken"), entered -> lock.unlock());
        }

        static Hold of(Callable<Object> enter, Leave leave) {
            return new Hold() {
                @Override
                public Object enter() throws Exception {
                    return enter.call();
                }

                @Override
                public void leave(Object entered) throws Exception {
                    leave.leave(entered);
                }
            };
        }
    }

    interface Leave {
        void leave(Object entered) throws Exception;
    }

    /**
     * Adds 1 to a counter under the lock, in a loop, by a separate read and write, so that two simultaneous holders lose
     * an addition. Under a shared hold, such as a reader's, it leaves the counter alone and fails if the counter changes.
     * Returns the start and end of each hold, both inside the real hold, and the fencing token if there is one.
     */
    static Object loop(Worker worker, Args args) throws Exception {
        boolean shared = List.of("read", "semaphore", "permitsemaphore").contains(args.peek());
        Object object = worker.object(args);
        Hold hold = Hold.of(object);
        long iterations = args.number();
        RBucket<String> counter = worker.client.redisson().getBucket(args.name(), StringCodec.INSTANCE);
        long holdNanos = TimeUnit.MICROSECONDS.toNanos(args.number());
        var holds = new StringJoiner(",");
        for (long i = 0; i < iterations; i++) {
            worker.event("waiting", System.nanoTime(), "-");
            Object entered = hold.enter();
            long start = System.nanoTime();
            String before = counter.get();
            long value = before == null ? 0 : Long.parseLong(before);
            worker.event("holding", start, value);
            for (long left = holdNanos; left > 0; left = start + holdNanos - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            if (!shared) {
                counter.set(Long.toString(++value));
            } else if (!Objects.equals(counter.get(), before)) {
                throw new IllegalStateException("the counter changed from " + before + " during a shared hold");
            }
            long end = System.nanoTime();
            hold.leave(entered);
            holds.add(start + ":" + end + (entered instanceof Long token ? ":" + token : ""));
            worker.event("released", System.nanoTime(), value);
        }
        return holds;
    }

    /**
     * Acquires the keys of the fault campaign in a loop until stopContending. The argument lists the kinds, each with its
     * first cell. During a hold it reads a cell, 8 bytes of a file, and writes a unique number. Each hold is a line of
     * java.log in the format of tests/chaos/workload.rs; unknown fields are 0. An exception becomes the outcome of the line.
     */
    static Object contend(Worker worker, Args args) throws Exception {
        Path folder = Path.of(args.text());
        long number = args.number() << 40;
        var random = new Random(args.number());
        long leaseMillis = args.number();
        String[] kinds = args.text().split(",");
        try (var file = FileChannel.open(folder.resolve("cells"), StandardOpenOption.READ, StandardOpenOption.WRITE);
                var log = FileChannel.open(
                        folder.resolve("java.log"), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            while (!worker.client.stopping) {
                String[] kind = kinds[random.nextInt(kinds.length)].split("=");
                Wanted wanted = wanted(worker, kind[0], Long.parseLong(kind[1]), leaseMillis, random, file);
                int parts = wanted.names.size();
                long[] read = new long[parts];
                long[] written = new long[parts];
                long start = 0;
                long asked = System.nanoTime();
                long end = 0;
                Object entered = null;
                String outcome = "Ok";
                try {
                    entered = wanted.hold.enter();
                    if (entered != null) {
                        start = System.nanoTime();
                        for (int i = 0; i < parts; i++) {
                            read[i] = wanted.cells.isEmpty() ? 0 : cell(file, wanted.cells.get(i));
                        }
                        LockSupport.parkNanos(random.nextInt(1_500_000));
                        for (int i = 0; i < wanted.cells.size(); i++) {
                            if (!wanted.writes) {
                                written[i] = cell(file, wanted.cells.get(i));
                                continue;
                            }
                            written[i] = ++number;
                            file.write(ByteBuffer.allocate(8).putLong(0, number), wanted.cells.get(i) * 8L);
                        }
                        end = System.nanoTime();
                        wanted.hold.leave(entered);
                    }
                } catch (Exception thrown) {
                    outcome = thrown.getClass().getSimpleName();
                    Thread.sleep(20);
                }
                for (int i = 0; i < parts && end > 0; i++) {
                    long token = entered instanceof Long fence ? fence : 0;
                    String line = "hold java " + worker.name + " - " + wanted.names.get(i) + " java " + leaseMillis + " "
                            + asked + " " + start + " Java " + read[i] + " " + written[i] + " " + end + " 1 Java 0 0 0 "
                            + outcome + " " + System.nanoTime() + " " + token + " " + wanted.share + "\n";
                    log.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
                }
                for (RLock lock : wanted.locks) {
                    giveBackTheRest(lock);
                }
                Thread.sleep(4 + random.nextInt(16));
            }
        }
        return "";
    }

    /**
     * The keys that a thread of the campaign acquires, with their cells if they guard any; the share of each that it takes;
     * and the locks that it uses.
     */
    record Wanted(List<String> names, List<Long> cells, boolean writes, long share, List<RLock> locks, Hold hold) {}

    static Wanted wanted(Worker worker, String kind, long cell, long leaseMillis, Random random, FileChannel cells)
            throws Exception {
        RedissonClient client = worker.client.redisson();
        switch (kind) {
            case "semaphore": {
                // The current generation. There may be none, and it may end during the wait.
                String name = "javasemaphore:" + cell(cells, 63);
                RSemaphore semaphore = client.getSemaphore(name);
                Callable<Object> enter = () -> semaphore.tryAcquire(300, TimeUnit.MILLISECONDS) ? "" : null;
                Hold hold = Hold.of(enter, entered -> semaphore.release());
                return new Wanted(List.of(name), List.of(), false, 1, List.of(), hold);
            }
            case "expirable": {
                String name = "expirable:" + cell(cells, 62);
                RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
                Hold hold = Hold.of(
                        () -> semaphore.tryAcquire(300, 2000, TimeUnit.MILLISECONDS),
                        entered -> semaphore.release((String) entered));
                return new Wanted(List.of(name), List.of(), false, 1, List.of(), hold);
            }
            case "multi": {
                List<RLock> locks = List.of(client.getLock("multi:0"), client.getLock("multi:1"));
                var both = new RedissonMultiLock(locks.get(0), locks.get(1));
                Hold hold = Hold.of(() -> { both.lock(); return ""; }, entered -> both.unlock());
                return new Wanted(List.of("multi:0", "multi:1"), List.of(cell, cell + 1), true, 1, locks, hold);
            }
            case "group": {
                var names = new ArrayList<String>();
                var numbers = new ArrayList<Long>();
                var values = new ArrayList<Object>();
                int chosen = 1 + random.nextInt(7);
                for (int at = 0; at < 3; at++) {
                    if ((chosen >> at & 1) == 1) {
                        values.add("abc".substring(at, at + 1));
                        names.add("group:hot/" + values.get(values.size() - 1));
                        numbers.add(cell + at);
                    }
                }
                RLock lock = (RLock) call(client, "getMultiLock", "group:hot", values);
                return new Wanted(names, numbers, true, 1, List.of(lock), Hold.of(lock));
            }
            case "readwrite": {
                boolean reads = random.nextBoolean();
                RLock lock = worker.lock(reads ? "read" : "write", "readwrite:hot");
                long share = reads ? 1 : 1 << 20;
                return new Wanted(
                        List.of("readwrite:hot"), List.of(cell), !reads, share, List.of(lock), Hold.of(lock));
            }
            case "reentrant": {
                int at = random.nextInt(10) >= 8 ? 1 : 0;
                RLock lock = worker.lock("plain", "hot:" + at);
                Callable<Object> leased = () -> { lock.lock(leaseMillis, TimeUnit.MILLISECONDS); return ""; };
                Hold hold = leaseMillis > 0 ? Hold.of(leased, entered -> lock.unlock()) : Hold.of(lock);
                return new Wanted(List.of("hot:" + at), List.of((long) at), true, 1, List.of(lock), hold);
            }
            default: {
                RLock lock = worker.lock(kind, kind + ":hot");
                return new Wanted(
                        List.of(kind + ":hot"), List.of(cell), true, 1, List.of(lock), Hold.of(lock));
            }
        }
    }

    static long cell(FileChannel cells, long cell) throws IOException {
        var bytes = ByteBuffer.allocate(8);
        cells.read(bytes, cell * 8);
        return bytes.getLong(0);
    }

    /** When Redisson repeats an unanswered acquire, it counts twice, and one unlock is not enough. */
    static void giveBackTheRest(RLock lock) {
        try {
            while (lock.isHeldByCurrentThread()) {
                lock.unlock();
            }
        } catch (Exception thrown) {
            // The lease ends the hold.
        }
    }

    /** A Redisson client under the name that requests use. It exists before it connects. */
    static final class Client {
        final String name;
        final Map<String, Worker> workers = new ConcurrentHashMap<>();
        volatile RedissonClient redisson;
        volatile boolean events;
        volatile boolean stopping;

        Client(String name) {
            this.name = name;
        }

        Worker worker(String thread) {
            return workers.computeIfAbsent(thread, key -> new Worker(this, key));
        }

        RedissonClient redisson() {
            if (redisson == null) {
                throw new IllegalStateException("client " + name + " is not connected");
            }
            return redisson;
        }

        /**
         * Takes the address, the watchdog timeout or 0, and settings such as fairLockWaitTimeout=500. Returns the uuid with
         * which the client's owner ids begin. An address is host:port, sentinel/master/host:port,host:port.. or one of
         * cluster/, replicated/ and masterslave/ followed by host:port,host:port..; masterslave/ lists the master first.
         */
        String connect(Args args) throws Exception {
            if (redisson != null) {
                throw new IllegalStateException("client " + name + " is already connected");
            }
            // One at a time: old versions read addresses and register clients in static state without synchronization.
            synchronized (CLIENTS) {
                Config config = new Config();
                Object server = servers(config, args.text());
                config.setThreads(4);
                config.setNettyThreads(4);
                long watchdogMillis = args.number();
                if (watchdogMillis > 0) {
                    call(config, "setLockWatchdogTimeout", watchdogMillis);
                }
                while (args.more()) {
                    set(config, server, args.text());
                }
                redisson = Redisson.create(config);
            }
            // The only way in all versions; getId() is newer.
            String owner = (String) call(redisson.getLock("owner"), "getLockName", 0L);
            return owner.substring(0, owner.length() - ":0".length());
        }

        /** Also stops the client's threads, after the requests that they already have. */
        String shutdown() {
            CLIENTS.remove(name, this);
            workers.values().forEach(worker -> worker.thread.shutdown());
            if (redisson != null) {
                redisson.shutdown();
            }
            return "";
        }

        /** Opens few connections at first. The maximum sizes of the pools, which limit concurrency, keep their defaults. */
        static Object servers(Config config, String address) throws Exception {
            String[] words = address.split("/");
            switch (words[0]) {
                case "sentinel":
                    SentinelServersConfig sentinels = config.useSentinelServers().setMasterName(words[1]);
                    sentinels.addSentinelAddress(urls(words[2]));
                    if (find(SentinelServersConfig.class, "setCheckSentinelsList", false) != null) {
                        call(sentinels, "setCheckSentinelsList", false);
                    }
                    sentinels.setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
                    return sentinels;
                case "cluster":
                    ClusterServersConfig cluster = config.useClusterServers().addNodeAddress(urls(words[1]));
                    cluster.setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
                    return cluster;
                case "replicated":
                    ReplicatedServersConfig replicated = config.useReplicatedServers().addNodeAddress(urls(words[1]));
                    replicated.setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
                    return replicated;
                case "masterslave":
                    String[] all = urls(words[1]);
                    MasterSlaveServersConfig masterSlave = config.useMasterSlaveServers().setMasterAddress(all[0]);
                    masterSlave.addSlaveAddress(Arrays.copyOfRange(all, 1, all.length));
                    masterSlave.setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
                    return masterSlave;
                default:
                    SingleServerConfig server = config.useSingleServer();
                    setAddress(server, address);
                    server.setConnectionMinimumIdleSize(1);
                    return server;
            }
        }

        static String[] urls(String addresses) {
            return Stream.of(addresses.split(",")).map(address -> "redis://" + address).toArray(String[]::new);
        }

        static void set(Config config, Object server, String setting) throws Exception {
            String key = setting.substring(0, setting.indexOf('='));
            String value = setting.substring(key.length() + 1);
            if (key.equals("codec")) {
                Class<?> codec = Class.forName("org.redisson.client.codec." + value);
                config.setCodec((Codec) codec.getConstructor().newInstance());
                return;
            }
            String method = "set" + Character.toUpperCase(key.charAt(0)) + key.substring(1);
            List<Object> readings = value.matches("-?\\d+")
                    ? List.of(Long.valueOf(value), Long.valueOf(value).intValue())
                    : List.of(Boolean.valueOf(value), value);
            for (Object target : List.of(config, server)) {
                for (Object reading : readings) {
                    if (find(target.getClass(), method, reading) != null) {
                        call(target, method, reading);
                        return;
                    }
                }
            }
            for (Object target : List.of(config, server)) {
                for (Method setter : target.getClass().getMethods()) {
                    if (setter.getName().equals(method) && setter.getParameterTypes()[0].isEnum()) {
                        for (Object constant : setter.getParameterTypes()[0].getEnumConstants()) {
                            if (constant.toString().equals(value)) {
                                call(target, method, constant);
                                return;
                            }
                        }
                    }
                }
            }
            throw new UnsupportedOperationException("this Redisson has no setting " + key);
        }

        /** Old versions prepend the scheme to an address; new versions require it. */
        static void setAddress(SingleServerConfig server, String address) throws Exception {
            String url = "redis://" + address;
            server.setAddress(url);
            if (!url.equals(String.valueOf(call(server, "getAddress")))) {
                server.setAddress(address);
            }
        }
    }

    /** One thread of one client. */
    static final class Worker {
        final Client client;
        final String name;
        final ExecutorService thread;
        volatile Thread running;
        // A thread keeps its lock object from lock() to unlock(), as Java code does: the object remembers the lease.
        final Map<String, Object> objects = new HashMap<>();

        Worker(Client client, String name) {
            this.client = client;
            this.name = name;
            this.thread = Executors.newSingleThreadExecutor(task -> {
                Thread thread = new Thread(task, client.name + "/" + name);
                thread.setDaemon(true);
                running = thread;
                return thread;
            });
        }

        boolean isAtSemaphore() {
            Thread thread = running;
            if (thread == null || thread.getState() == Thread.State.RUNNABLE) {
                return false;
            }
            return Arrays.stream(thread.getStackTrace())
                    .anyMatch(frame -> frame.getClassName().equals("java.util.concurrent.Semaphore"));
        }

        RLock lock(Args args) throws Exception {
            return asLock(object(args));
        }

        RLock lock(String kind, String name) throws Exception {
            return asLock(object(kind, name));
        }

        Object object(Args args) throws Exception {
            String kind = args.text();
            return object(kind, args.name());
        }

        Object object(String kind, String name) throws Exception {
            if (!objects.containsKey(kind + " " + name)) {
                keep(kind, name, open(client.redisson(), kind, name));
            }
            return objects.get(kind + " " + name);
        }

        void keep(String kind, String name, Object object) {
            objects.put(kind + " " + name, object);
        }

        void event(String what, long nanos, Object counter) {
            if (client.events) {
                emit("* " + client.name + " " + name + " " + what + " " + nanos + " " + counter);
            }
        }
    }

    /** The arguments of a request, read from left to right. */
    static final class Args {
        final String[] words;
        int next;

        Args(String[] words, int next) {
            this.words = words;
            this.next = next;
        }

        boolean more() {
            return next < words.length;
        }

        String peek() {
            if (!more()) {
                throw new IllegalArgumentException("argument " + (next - 3) + " is missing");
            }
            return words[next];
        }

        String text() {
            String word = peek();
            next++;
            return word;
        }

        long number() {
            return Long.parseLong(text());
        }

        String name() {
            return decoded(text());
        }

        /** The remaining words, as arguments of a method. */
        Object[] values() {
            var values = new ArrayList<Object>();
            while (more()) {
                values.add(value(text()));
            }
            return values.toArray();
        }

        /** A letter for the type, and the value: i3, l3, ms, d500, s with base64, [ with comma-separated ids. */
        static Object value(String word) {
            String rest = word.substring(1);
            return switch (word.charAt(0)) {
                case 'i' -> Integer.valueOf(rest);
                case 'l' -> Long.valueOf(rest);
                case 'm' -> TimeUnit.MILLISECONDS;
                case 'd' -> Duration.ofMillis(Long.parseLong(rest));
                case 's' -> decoded(rest);
                case '[' -> List.of(rest.split(","));
                default -> throw new IllegalArgumentException("no argument: " + word);
            };
        }

        static String decoded(String base64) {
            return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
        }
    }

    /** Old multi locks have the methods of RLock without implementing it. */
    static RLock asLock(Object object) {
        if (object instanceof RLock lock) {
            return lock;
        }
        return (RLock) Proxy.newProxyInstance(
                Peer.class.getClassLoader(),
                new Class<?>[] {RLock.class},
                (proxy, method, arguments) ->
                        call(object, method.getName(), arguments == null ? new Object[0] : arguments));
    }

    // Thread.threadId() replaces it since Java 19.
    @SuppressWarnings("deprecation")
    static long threadId() {
        return Thread.currentThread().getId();
    }

    /** Calls a method that this version of Redisson may lack, or may not expose. */
    static Object call(Object target, String name, Object... arguments) throws Exception {
        Method method = find(target.getClass(), name, arguments);
        if (method == null) {
            throw new UnsupportedOperationException("this Redisson has no " + name);
        }
        method.setAccessible(true);
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Error error) {
                throw error;
            }
            throw (Exception) thrown.getCause();
        }
    }

    static Object callIfThere(Object target, String name) throws Exception {
        return find(target.getClass(), name) == null ? null : call(target, name);
    }

    static Method find(Class<?> type, String name, Object... arguments) {
        for (Class<?> c = type; c != null; c = c.getSuperclass()) {
            for (Method method : c.getDeclaredMethods()) {
                if (method.getName().equals(name) && takes(method.getParameterTypes(), arguments)) {
                    return method;
                }
            }
        }
        return null;
    }

    static boolean takes(Class<?>[] parameters, Object[] arguments) {
        boolean takes = parameters.length == arguments.length;
        for (int i = 0; takes && i < arguments.length; i++) {
            takes = MethodType.methodType(parameters[i]).wrap().returnType().isInstance(arguments[i]);
        }
        return takes;
    }
}
