import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.LogManager;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/**
 * Runs Redisson on commands from `cargo xtask bench`, with the same commands and replies as benches/contenders. The
 * arguments are the server's URL and optionally, instead of the defaults, the size of the connection pool and the number
 * of Netty threads.
 */
public final class Bench {
    private static final long WARM_UP_MS = 300;
    private static final long HELD_NS = 200_000;
    private static final long CROWD_HELD_MS = 1;

    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final RedissonClient client;
    private final List<Thread> holders = new ArrayList<>();
    private volatile CountDownLatch dropped = new CountDownLatch(1);

    private Bench(RedissonClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        LogManager.getLogManager().reset();
        // Without this, the main thread would wait for ever for a worker that died.
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
            failure.printStackTrace();
            System.exit(1);
        });
        Config config = new Config();
        SingleServerConfig server = config.useSingleServer().setAddress(arguments[0]);
        if (arguments.length > 1) {
            int pool = Integer.parseInt(arguments[1]);
            // Opens all connections at the start.
            server.setConnectionPoolSize(pool).setConnectionMinimumIdleSize(pool);
            config.setNettyThreads(Integer.parseInt(arguments[2]));
        }
        Bench bench = new Bench(Redisson.create(config));
        System.out.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "uncontended" -> bench.rounds(Integer.parseInt(words[1]), seconds(words[2]), false);
                case "contended" -> bench.rounds(Integer.parseInt(words[1]), seconds(words[2]), true);
                case "kind" -> bench.kind(
                        words[1], words[2].equals("own"), Integer.parseInt(words[3]), seconds(words[4]));
                case "crowd" -> crowd(arguments[0], Integer.parseInt(words[1]), seconds(words[2]));
                case "turns" -> bench.turns(seconds(words[1]), Path.of(words[2]));
                case "hold" -> bench.hold(Integer.parseInt(words[1]));
                case "idle" -> idle(seconds(words[1]));
                case "drop" -> bench.drop();
                default -> throw new IllegalArgumentException("no such command: " + line);
            }
            System.out.println("done");
        }
        // The client's threads would keep the JVM running.
        Runtime.getRuntime().halt(0);
    }

    private static double seconds(String word) {
        return Double.parseDouble(word);
    }

    /** How a worker acquires and releases. */
    private interface Handle {
        void acquire() throws InterruptedException;

        void release();

        static Handle of(Lock lock) {
            return new Handle() {
                @Override
                public void acquire() {
                    lock.lock();
                }

                @Override
                public void release() {
                    lock.unlock();
                }
            };
        }

        static Handle of(RSemaphore semaphore) {
            return new Handle() {
                @Override
                public void acquire() throws InterruptedException {
                    semaphore.acquire();
                }

                @Override
                public void release() {
                    semaphore.release();
                }
            };
        }

        static Handle of(RPermitExpirableSemaphore semaphore) {
            return new Handle() {
                private String permit;

                @Override
                public void acquire() throws InterruptedException {
                    permit = semaphore.acquire();
                }

                @Override
                public void release() {
                    semaphore.release(permit);
                }
            };
        }
    }

    /** Workers of one client acquire and release a lock in a loop, either all the same lock or each its own. */
    private void rounds(int workers, double seconds, boolean contended) throws InterruptedException {
        List<Handle> handles = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            handles.add(Handle.of(client.getLock(contended ? "bench" : "bench:" + worker)));
        }
        rounds(handles, 0, seconds);
    }

    /**
     * Workers of one client acquire and release locks of one kind in a loop: each its own, or all the same one. A shared
     * semaphore has four permits.
     */
    private void kind(String kind, boolean own, int workers, double seconds) throws InterruptedException {
        List<Handle> handles = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            handles.add(kind(kind, "bench:" + kind + (own ? ":" + worker : ""), own ? 1 : 4));
        }
        rounds(handles, 0, seconds);
    }

    private Handle kind(String kind, String name, int permits) {
        return switch (kind) {
            case "fair" -> Handle.of(client.getFairLock(name));
            case "fenced" -> Handle.of(client.getFencedLock(name));
            case "read" -> Handle.of(client.getReadWriteLock(name).readLock());
            case "write" -> Handle.of(client.getReadWriteLock(name).writeLock());
            case "spin" -> Handle.of(client.getSpinLock(name));
            case "value" -> Handle.of(client.getLock(name));
            case "semaphore" -> {
                RSemaphore semaphore = client.getSemaphore(name);
                semaphore.trySetPermits(permits);
                yield Handle.of(semaphore);
            }
            case "expirable" -> {
                RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
                semaphore.trySetPermits(permits);
                yield Handle.of(semaphore);
            }
            default -> throw new IllegalArgumentException("no such kind: " + kind);
        };
    }

    /** Clients with one worker each acquire and release the same lock in a loop, and hold it for a while. */
    private static void crowd(String address, int clients, double seconds) throws InterruptedException {
        List<RedissonClient> all = new ArrayList<>();
        List<Handle> handles = new ArrayList<>();
        for (int n = 0; n < clients; n++) {
            Config config = new Config().setThreads(2).setNettyThreads(2);
            config.useSingleServer().setAddress(address).setConnectionPoolSize(2).setConnectionMinimumIdleSize(1);
            RedissonClient client = Redisson.create(config);
            all.add(client);
            handles.add(Handle.of(client.getLock("bench")));
        }
        rounds(handles, CROWD_HELD_MS, seconds);
        all.forEach(RedissonClient::shutdown);
    }

    /** One worker for each handle. */
    private static void rounds(List<Handle> handles, long heldMs, double seconds) throws InterruptedException {
        int workers = handles.size();
        AtomicBoolean stop = new AtomicBoolean();
        AtomicLong[] counts = new AtomicLong[workers];
        List<Thread> threads = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            AtomicLong count = counts[worker] = new AtomicLong();
            Handle handle = handles.get(worker);
            threads.add(started(() -> {
                try {
                    while (!stop.get()) {
                        handle.acquire();
                        count.incrementAndGet();
                        if (heldMs > 0) {
                            LockSupport.parkNanos(heldMs * 1_000_000);
                        }
                        handle.release();
                    }
                } catch (InterruptedException interrupted) {
                    throw new IllegalStateException(interrupted);
                }
            }));
        }
        Thread.sleep(WARM_UP_MS);
        System.out.println("begin");
        long[] before = read(counts);
        long spent = SYSTEM.getProcessCpuTime();
        long began = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        long[] after = read(counts);
        double took = (System.nanoTime() - began) / 1e9;
        double cpu = (SYSTEM.getProcessCpuTime() - spent) / 1e9;
        long holds = 0;
        long least = Long.MAX_VALUE;
        long most = 0;
        for (int worker = 0; worker < workers; worker++) {
            long own = after[worker] - before[worker];
            holds += own;
            least = Math.min(least, own);
            most = Math.max(most, own);
        }
        System.out.printf(
                Locale.ROOT, "end holds=%d seconds=%f cpu=%f least=%d most=%d%n", holds, took, cpu, least, most);
        stop.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static long[] read(AtomicLong[] counts) {
        long[] values = new long[counts.length];
        for (int i = 0; i < values.length; i++) {
            values[i] = counts[i].get();
        }
        return values;
    }

    private static Thread started(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** One worker that always wants the lock, next to a worker of another process. */
    private void turns(double seconds, Path file) {
        RLock lock = client.getLock("bench");
        StringJoiner log = new StringJoiner("\n", "", "\n");
        long began = System.nanoTime();
        System.out.println("begin");
        while (System.nanoTime() - began < seconds * 1e9) {
            lock.lock();
            long locked = System.nanoTime();
            while (System.nanoTime() - locked < HELD_NS) {
                Thread.onSpinWait();
            }
            long unlocking = System.nanoTime();
            lock.unlock();
            log.add(locked + " " + unlocking + " " + System.nanoTime());
        }
        try {
            Files.writeString(file, log.toString());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        System.out.println("end");
    }

    private static void idle(double seconds) throws InterruptedException {
        System.gc();
        System.out.println("begin");
        long spent = SYSTEM.getProcessCpuTime();
        long began = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        double took = (System.nanoTime() - began) / 1e9;
        double cpu = (SYSTEM.getProcessCpuTime() - spent) / 1e9;
        System.out.printf(Locale.ROOT, "end seconds=%f cpu=%f memory=%d%n", took, cpu, memory());
    }

    private static long memory() {
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }

    /** Acquires {@code count} more locks. A hold belongs to a thread, so the threads stay. */
    private void hold(int count) throws InterruptedException {
        System.gc();
        System.out.println("begin");
        long before = memory();
        int threads = 64;
        CountDownLatch taken = new CountDownLatch(threads);
        CountDownLatch end = dropped;
        int first = holders.size() / threads;
        for (int worker = 0; worker < threads; worker++) {
            int from = worker;
            holders.add(started(() -> {
                for (int n = from; n < count; n += threads) {
                    client.getLock("held:" + first + ":" + n).lock();
                }
                taken.countDown();
                while (end.getCount() > 0) {
                    LockSupport.parkNanos(100_000_000);
                }
                for (int n = from; n < count; n += threads) {
                    client.getLock("held:" + first + ":" + n).unlock();
                }
            }));
        }
        taken.await();
        System.gc();
        System.out.printf(Locale.ROOT, "end memory=%d%n", Math.max(0, memory() - before));
    }

    private void drop() throws InterruptedException {
        dropped.countDown();
        for (Thread holder : holders) {
            holder.join();
        }
        holders.clear();
        dropped = new CountDownLatch(1);
    }
}
