import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.StringJoiner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.LogManager;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/**
 * A real Redisson that does what it is told on stdin, for tests that set it against this project's Rust client.
 *
 * <pre>
 * request   &lt;id&gt; &lt;client&gt; &lt;thread&gt; &lt;command&gt; &lt;args...&gt;
 * answers   &lt;id&gt; at &lt;ns&gt;                       the command starts now
 *           &lt;id&gt; ok &lt;ns&gt; &lt;value...&gt;            it returned
 *           &lt;id&gt; err &lt;ns&gt; &lt;class&gt; &lt;message&gt;    it threw
 * unasked   * &lt;client&gt; &lt;thread&gt; waiting|holding|released &lt;ns&gt; &lt;counter or -&gt;
 * </pre>
 *
 * Each (client, thread) pair is one Java thread, which does its requests in order; for Redisson the thread is the
 * owner. Times are CLOCK_MONOTONIC, so that another process on this machine can compare them with its own. Names of
 * locks and keys travel as base64 of their UTF-8. The program ends, without any clean-up, when stdin does: a test
 * that is killed leaves nothing behind.
 *
 * <p>One source serves Redisson 3.3.2 to 4.7.0, so what only some versions have is called by its name.
 */
public final class Peer {
    interface Kind {
        Object open(RedissonClient client, String name) throws Exception;
    }

    interface Command {
        Object run(Worker worker, Args args) throws Exception;
    }

    /** Whatever is not an RLock (a semaphore, say) also goes here, and its commands into COMMANDS. */
    static final Map<String, Kind> KINDS = Map.ofEntries(
            Map.entry("plain", RedissonClient::getLock),
            Map.entry("spin", (client, name) -> call(client, "getSpinLock", name)));

    static final Map<String, Command> COMMANDS = Map.ofEntries(
            Map.entry("connect", (w, a) -> w.client.connect(a.text(), a.number())),
            Map.entry("shutdown", (w, a) -> w.client.shutdown()),
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
            Map.entry("loop", Peer::loop),
            Map.entry("contend", Peer::contend),
            Map.entry("stopContending", (w, a) -> w.client.stopping = true));

    static final Map<String, Client> CLIENTS = new ConcurrentHashMap<>();
    static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws IOException {
        // Netty logs here when slf4j drops what it is given.
        LogManager.getLogManager().reset();
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
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
            emit(id + " ok " + now + " " + (value == null ? "-" : value));
        } catch (Throwable thrown) {
            long now = System.nanoTime();
            String message = String.valueOf(thrown.getMessage()).replaceAll("\\s+", " ");
            emit(id + " err " + now + " " + thrown.getClass().getSimpleName() + " " + message);
        }
    }

    /** One write a line: the threads of all clients share stdout. */
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

    /**
     * Adds 1 to a counter under the lock, again and again, by a separate read and write: two holders at a time lose an
     * addition. Tells when each hold began and ended, in such a way that a time told is never outside the real hold.
     */
    static Object loop(Worker worker, Args args) throws Exception {
        RLock lock = worker.lock(args);
        long iterations = args.number();
        RBucket<String> counter = worker.client.redisson().getBucket(args.name(), StringCodec.INSTANCE);
        long holdNanos = TimeUnit.MICROSECONDS.toNanos(args.number());
        var holds = new StringJoiner(",");
        for (long i = 0; i < iterations; i++) {
            worker.event("waiting", System.nanoTime(), "-");
            lock.lock();
            long start = System.nanoTime();
            String before = counter.get();
            long value = before == null ? 0 : Long.parseLong(before);
            worker.event("holding", start, value);
            for (long left = holdNanos; left > 0; left = start + holdNanos - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            counter.set(Long.toString(value + 1));
            long end = System.nanoTime();
            lock.unlock();
            holds.add(start + ":" + end);
            worker.event("released", System.nanoTime(), value + 1);
        }
        return holds;
    }

    /**
     * Takes the hot keys of the fault campaign, again and again, until stopContending. Inside, it reads a cell of 8 bytes
     * of a file and writes a number that is used once. A line for each hold goes to java.log, as tests/torture/work.rs
     * explains them; what Java does not know is 0, and so is what it throws, save for the line's outcome.
     */
    static Object contend(Worker worker, Args args) throws Exception {
        Path folder = Path.of(args.text());
        long number = args.number() << 40;
        var random = new Random(args.number());
        long leaseMillis = args.number();
        RLock[] locks = {worker.client.redisson().getLock("hot:0"), worker.client.redisson().getLock("hot:1")};
        try (var cells = FileChannel.open(folder.resolve("cells"), StandardOpenOption.READ, StandardOpenOption.WRITE);
                var log = FileChannel.open(
                        folder.resolve("java.log"), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            while (!worker.client.stopping) {
                int cell = random.nextInt(10) >= 8 ? 1 : 0;
                long start = 0;
                long asked = System.nanoTime();
                long end = 0;
                long read = 0;
                String outcome = "Ok";
                try {
                    if (leaseMillis > 0) {
                        locks[cell].lock(leaseMillis, TimeUnit.MILLISECONDS);
                    } else {
                        locks[cell].lock();
                    }
                    start = System.nanoTime();
                    var bytes = ByteBuffer.allocate(8);
                    cells.read(bytes, cell * 8L);
                    read = bytes.getLong(0);
                    LockSupport.parkNanos(random.nextInt(1_500_000));
                    number++;
                    cells.write(ByteBuffer.allocate(8).putLong(0, number), cell * 8L);
                    end = System.nanoTime();
                    locks[cell].unlock();
                } catch (Exception thrown) {
                    outcome = thrown.getClass().getSimpleName();
                    Thread.sleep(20);
                }
                if (end > 0) {
                    String line = "hold java " + worker.name + " - hot:" + cell + " java " + leaseMillis + " " + asked
                            + " " + start + " Java " + read + " " + number + " " + end + " 1 Java 0 0 0 " + outcome
                            + " " + System.nanoTime() + "\n";
                    log.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
                }
                Thread.sleep(4 + random.nextInt(16));
            }
        }
        return "";
    }

    /** A Redisson client, by the name that requests give it. It exists before it is connected. */
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

        /** Replies the uuid with which the client's owners begin. */
        String connect(String address, long watchdogMillis) throws Exception {
            if (redisson != null) {
                throw new IllegalStateException("client " + name + " is already connected");
            }
            Config config = new Config();
            SingleServerConfig server = config.useSingleServer();
            setAddress(server, address);
            // Only what connecting costs: the sizes of the pools, which bound the concurrency, stay as they are.
            server.setConnectionMinimumIdleSize(1);
            config.setThreads(4);
            config.setNettyThreads(4);
            if (watchdogMillis > 0) {
                call(config, "setLockWatchdogTimeout", watchdogMillis);
            }
            // One at a time: in old versions the making of every client fills the same unguarded static map.
            synchronized (CLIENTS) {
                redisson = Redisson.create(config);
            }
            // The one place where every version shows it; getId() came late.
            String owner = (String) call(redisson.getLock("owner"), "getLockName", 0L);
            return owner.substring(0, owner.length() - ":0".length());
        }

        /** Also ends the client's threads, each after the requests that it already has. */
        String shutdown() {
            CLIENTS.remove(name, this);
            workers.values().forEach(worker -> worker.thread.shutdown());
            if (redisson != null) {
                redisson.shutdown();
            }
            return "";
        }

        /** Old versions put the scheme in front of an address by themselves, new ones demand it. */
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
        // As Java code does, a thread keeps its lock object from lock() to unlock(): the object remembers the lease.
        final Map<String, Object> objects = new HashMap<>();

        Worker(Client client, String name) {
            this.client = client;
            this.name = name;
            this.thread = Executors.newSingleThreadExecutor(task -> {
                Thread thread = new Thread(task, client.name + "/" + name);
                thread.setDaemon(true);
                return thread;
            });
        }

        RLock lock(Args args) throws Exception {
            return (RLock) object(args);
        }

        Object object(Args args) throws Exception {
            String kind = args.text();
            String name = args.name();
            String key = kind + " " + name;
            if (!objects.containsKey(key)) {
                Kind known = KINDS.get(kind);
                if (known == null) {
                    throw new IllegalArgumentException("no such kind: " + kind);
                }
                objects.put(key, known.open(client.redisson(), name));
            }
            return objects.get(key);
        }

        void event(String what, long nanos, Object counter) {
            if (client.events) {
                emit("* " + client.name + " " + name + " " + what + " " + nanos + " " + counter);
            }
        }
    }

    /** The words of a request behind its command, read from left to right. */
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

        String text() {
            if (!more()) {
                throw new IllegalArgumentException("argument " + (next - 3) + " is missing");
            }
            return words[next++];
        }

        long number() {
            return Long.parseLong(text());
        }

        String name() {
            return new String(Base64.getDecoder().decode(text()), StandardCharsets.UTF_8);
        }
    }

    // Thread.threadId() takes its place from Java 19 on.
    @SuppressWarnings("deprecation")
    static long threadId() {
        return Thread.currentThread().getId();
    }

    /** Calls a method that this version of Redisson may lack or hide. */
    static Object call(Object target, String name, Object... arguments) throws Exception {
        Method method = find(target.getClass(), name, arguments);
        if (method == null) {
            throw new UnsupportedOperationException("this Redisson has no " + name);
        }
        method.setAccessible(true);
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw thrown;
        }
    }

    static Object callIfThere(Object target, String name) throws Exception {
        return find(target.getClass(), name) == null ? null : call(target, name);
    }

    static Method find(Class<?> type, String name, Object... arguments) {
        Class<?>[] wanted = Arrays.stream(arguments)
                .map(argument -> argument instanceof Long ? long.class : argument.getClass())
                .toArray(Class<?>[]::new);
        for (Class<?> c = type; c != null; c = c.getSuperclass()) {
            for (Method method : c.getDeclaredMethods()) {
                if (method.getName().equals(name) && Arrays.equals(method.getParameterTypes(), wanted)) {
                    return method;
                }
            }
        }
        return null;
    }
}
