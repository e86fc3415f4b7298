// Reads the wall clock in every way that the library has, and waits in every way that takes a time. One line each: name,
// seconds, nanoseconds.
import java.time.Instant;
import java.util.Date;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

public class Reads {
    static void say(String name, long seconds, long nanos) { System.out.println(name + " " + seconds + " " + nanos); }

    public static void main(String[] arguments) throws Exception {
        Instant now = Instant.now();
        say("main.Instant", now.getEpochSecond(), now.getNano());
        long millis = System.currentTimeMillis();
        say("main.currentTimeMillis", millis / 1000, millis % 1000 * 1000000);
        say("main.Date", new Date().getTime() / 1000, 0);
        long began = System.nanoTime();
        Thread.sleep(50);
        Object lock = new Object();
        synchronized (lock) { lock.wait(50); }
        LockSupport.parkNanos(50_000_000L);
        LockSupport.parkUntil(System.currentTimeMillis() + 50);
        LockSupport.parkUntil(System.currentTimeMillis() - 3_600_000);
        ReentrantLock held = new ReentrantLock();
        held.lock();
        held.newCondition().await(50, TimeUnit.MILLISECONDS);
        held.newCondition().awaitUntil(new Date(System.currentTimeMillis() + 50));
        var executor = Executors.newScheduledThreadPool(2);
        CountDownLatch latch = new CountDownLatch(3);
        executor.scheduleAtFixedRate(latch::countDown, 20, 20, TimeUnit.MILLISECONDS);
        if (!latch.await(60, TimeUnit.SECONDS)) throw new Exception("the executor did not run");
        executor.shutdownNow();
        if (System.nanoTime() - began < 200_000_000L) throw new Exception("waits were too short");
        Instant after = Instant.now();
        say("waited.Instant", after.getEpochSecond(), after.getNano());
    }
}
