package controlplane

// This file starts, stops and pauses the processes of a control plane.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// launcher starts processes from one goroutine on one OS thread that lives as long as the launcher. On Linux the
// kernel kills a child when the *thread* that forked it ends, and Go can end idle threads at any time.
type launcher struct {
	requests chan launchRequest
	once     sync.Once
}

type launchRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func newLauncher() *launcher {
	l := &launcher{requests: make(chan launchRequest)}
	go func() {
		// The thread is never unlocked, so it ends with the goroutine, and not before.
		runtime.LockOSThread()
		for request := range l.requests {
			request.result <- request.cmd.Start()
		}
	}()
	return l
}

// close ends the thread and, on Linux, every child that still runs. No process can be started afterwards.
func (l *launcher) close() {
	l.once.Do(func() { close(l.requests) })
}

// process is one running server.
type process struct {
	name    string
	logFile string
	logFrom int64 // offset at which this process's part of the log begins
	pidFile string
	cmd     *exec.Cmd
	exited  chan struct{} // closed once waitErr is set
	waitErr error
}

var instanceNumber = regexp.MustCompile(`-\d+$`)

// start starts a server. Its log is in logDir, and a file in dir holds its process ID.
func (l *launcher) start(assets, dir, logDir, name string, args []string) (*process, error) {
	p := &process{
		name:    name,
		logFile: filepath.Join(logDir, name+".log"),
		pidFile: filepath.Join(dir, name+pidSuffix),
		exited:  make(chan struct{}),
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer log.Close() // the child has its own descriptor
	if info, err := log.Stat(); err == nil {
		p.logFrom = info.Size()
	}
	p.cmd = exec.Command(filepath.Join(assets, instanceNumber.ReplaceAllString(name, "")), args...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = childAttributes()

	result := make(chan error)
	l.requests <- launchRequest{p.cmd, result}
	if err := <-result; err != nil {
		return nil, fmt.Errorf("check that the assets folder %s holds %s for this operating system and processor: %w",
			assets, name, err)
	}
	go func() {
		p.waitErr = p.cmd.Wait()
		close(p.exited)
	}()
	if err := os.WriteFile(p.pidFile, []byte(strconv.Itoa(p.cmd.Process.Pid)), 0o600); err != nil {
		p.kill()
		return nil, fmt.Errorf("process ID of %s: %w", name, err)
	}
	return p, nil
}

// waitReady returns nil once ready does. If the process or ctx ends first, it returns an error with the end of the
// log.
func (p *process) waitReady(ctx context.Context, ready func(context.Context) error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()

	lastAnswer := "none"
	for {
		select {
		case <-p.exited:
			return p.startFailure()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("%s was not ready yet: %w", p.name, context.Cause(ctx))
			}
			return fmt.Errorf(
				"if the machine is busy, pass a context with a later deadline: %s is not ready: %w (last answer: %s)%s",
				p.name, ctx.Err(), lastAnswer, p.logTail())
		case <-ticker.C:
			err := ready(ctx)
			if err == nil {
				return nil
			}
			// The error of a cancelled probe is not the server's answer.
			if ctx.Err() == nil {
				lastAnswer = err.Error()
			}
		}
	}
}

var errPortTaken = errors.New("a port is taken")

func (p *process) startFailure() error {
	tail := p.logTail()

	remedy := "see the end of its log below"
	if p.name != "etcd" {
		remedy += " and check ControlPlaneOptions.APIServerArgs"
	}
	cause := p.ending()
	if bytes.Contains([]byte(tail), []byte("address already in use")) {
		cause = fmt.Errorf("%w: %w", errPortTaken, cause)
	}
	return fmt.Errorf("%s: %s ended before it was ready: %w%s", remedy, p.name, cause, tail)
}

// ending describes how an exited process ended.
func (p *process) ending() error {
	if p.waitErr == nil {
		return errors.New("exit status 0")
	}
	return p.waitErr
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// endedByItself returns the error for an exited process that was not stopped.
func (p *process) endedByItself(name string) error {
	return fmt.Errorf("%s had ended by itself: %w%s", name, p.ending(), p.logTail())
}

// logTail returns the last lines that this process wrote, under a heading, ready to be appended to an error.
func (p *process) logTail() string {
	return logTail(p.logFile, p.logFrom)
}

// logTail returns the last lines of a log from the offset on: at most 4 KiB.
func logTail(path string, offset int64) string {
	const limit = 4 << 10

	file, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("\n(no log: %v)", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size()-offset > limit {
		offset = info.Size() - limit
	}
	data, err := io.ReadAll(io.NewSectionReader(file, offset, limit))
	if err != nil {
		return fmt.Sprintf("\n(no log: %v)", err)
	}
	if i := bytes.IndexByte(data, '\n'); len(data) == limit && i >= 0 {
		data = data[i+1:] // begin with a whole line
	}
	return fmt.Sprintf("\n--- end of %s ---\n%s", filepath.Base(path), bytes.TrimSpace(data))
}

// pause freezes the process and returns once it runs no more. A signal alone is delivered to one of its threads, and
// until the kernel runs that one, the others go on.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(signalPause); err != nil {
		return err
	}
	return waitFrozen(p.cmd.Process.Pid)
}

func (p *process) resume() error { return p.cmd.Process.Signal(signalResume) }

// stop terminates the process, kills it after the grace period, and waits until it is gone. It returns an error if the
// process had already exited by itself.
func (p *process) stop(grace time.Duration) error {
	if p.hasExited() {
		p.kill()
		return p.endedByItself(p.name)
	}
	// Errors are ignored, because they mean that the process is already gone. The kill below handles all other cases.
	_ = p.cmd.Process.Signal(signalTerminate)
	_ = p.resume()

	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
	}
	p.kill()
	return nil
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
	_ = os.Remove(p.pidFile) // the folder is removed too
}
