package kubelet

// This file starts programs from one thread. Linux ends a program with the thread that started it, and Go's own threads
// come and go.

import "runtime"

// launcher runs functions on a thread that stays until the channel is closed.
type launcher chan func()

func newLauncher() launcher {
	l := make(launcher)
	go func() {
		runtime.LockOSThread()
		for f := range l {
			f()
		}
	}()
	return l
}

// do runs f on the thread and returns its error.
func (l launcher) do(f func() error) error {
	result := make(chan error, 1)
	l <- func() { result <- f() }
	return <-result
}
