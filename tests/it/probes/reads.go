// Reads the wall clock in the main goroutine, in others, and in an executed child. One line each: name, seconds,
// nanoseconds.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

var early = time.Now()

func say(name string, t time.Time) { fmt.Printf("%s %d %d\n", name, t.Unix(), t.Nanosecond()) }

func main() {
	if len(os.Args) > 1 {
		say("exec.now", time.Now())
		return
	}
	say("before.now", early)
	say("main.now", time.Now())
	var v syscall.Timeval
	if err := syscall.Gettimeofday(&v); err != nil {
		panic(err)
	}
	fmt.Printf("main.gettimeofday %d %d\n", v.Sec, v.Usec*1000)
	var wait sync.WaitGroup
	times := make([]time.Time, 20)
	for i := range times {
		wait.Add(1)
		go func() { defer wait.Done(); time.Sleep(time.Millisecond); times[i] = time.Now() }()
	}
	wait.Wait()
	for _, t := range times {
		say("goroutine.now", t)
	}
	if slept := time.Since(early); slept < time.Millisecond || slept > time.Minute {
		panic(slept)
	}
	child := exec.Command("/proc/self/exe", "child")
	child.Stdout = os.Stdout
	if err := child.Run(); err != nil {
		panic(err)
	}
}
