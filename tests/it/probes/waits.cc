// Waits of the C++ library on each clock, for dates ahead and past. Ends with "ok".
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <thread>

using namespace std::chrono;

template <class Clock> static int waits(const char *name) {
    std::mutex mutex;
    std::condition_variable condition;
    std::timed_mutex timed;
    timed.lock();
    for (int ms : {100, -100000}) {
        auto began = steady_clock::now();
        auto until = Clock::now() + milliseconds(ms);
        std::unique_lock<std::mutex> lock(mutex);
        condition.wait_until(lock, until, [] { return false; });
        if (Clock::now() < until) return std::printf("%s: wait_until came early\n", name), 1;
        std::this_thread::sleep_until(Clock::now() + milliseconds(ms));
        auto other = std::async(std::launch::async, [&] { return timed.try_lock_until(Clock::now() + milliseconds(ms)); });
        if (other.get()) return std::printf("%s: the mutex was free\n", name), 1;
        auto took = duration_cast<milliseconds>(steady_clock::now() - began).count();
        if (ms > 0 ? took < 290 : took > 60000) return std::printf("%s: %d took %ld\n", name, ms, (long)took), 1;
    }
    return 0;
}

int main() {
    if (waits<system_clock>("system_clock") || waits<steady_clock>("steady_clock")) return 1;
    std::puts("ok");
}
