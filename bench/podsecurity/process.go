package podsecurity

// This file starts and stops the programs of peers.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

const (
	starts       = 3                // that are measured
	startTimeout = time.Minute      // until the first correct verdicts
	endTimeout   = 90 * time.Second // from the interrupt to the end
)

// process is a running program.
type process struct {
	cmd     *exec.Cmd
	log     *os.File
	began   time.Time
	done    chan struct{}
	result  error
	stopped bool
}

// startProcess starts a program with as many threads for Go code as this machine has cores. It writes its log to a file,
// as it would in a container.
func startProcess(ctx context.Context, c *cluster, name string, program func(context.Context) *exec.Cmd) (*process, error) {
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: program(context.WithoutCancel(ctx)), log: log, done: make(chan struct{})}
	if p.cmd.Env == nil {
		p.cmd.Env = os.Environ()
	}
	p.cmd.Env = append(p.cmd.Env, fmt.Sprintf("GOMAXPROCS=%d", runtime.NumCPU()))
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = log, log, childAttributes()
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		p.result = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end interrupts the program and waits for its end. How it ends does not matter, unless it does not.
func (p *process) end() error {
	if p.stopped {
		return nil
	}
	p.stopped = true
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.done:
		return p.log.Close()
	case <-time.After(endTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %s", p.cmd.Path, endTimeout), p.cmd.Process.Kill(), p.log.Close())
	}
}

// logEnd returns the end of the program's log.
func (p *process) logEnd() []byte {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(text[max(0, len(text)-2000):])
}

func (p *process) size() (int64, error) {
	info, err := os.Stat(p.cmd.Path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// awaitVerdicts sends a pod that complies and one that does not, until both verdicts are right. It returns the time since
// the program was started.
func awaitVerdicts(ctx context.Context, to *sender, namespace string, p *process) (time.Duration, error) {
	compliant, err := newPod(1000, false)
	if err != nil {
		return 0, err
	}
	violating, err := newPod(1000, true)
	if err != nil {
		return 0, err
	}
	began, ended := time.Now(), (<-chan struct{})(nil)
	if p != nil {
		began, ended = p.began, p.done
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last string
	for {
		refused, err := to.ask(ctx, violating, namespace)
		if err == nil && refused {
			if refused, err = to.ask(ctx, compliant, namespace); err == nil && !refused {
				return time.Since(began), nil
			}
		}
		if ctx.Err() == nil {
			last = fmt.Sprintf("the last pod was refused: %t; %v", refused, err)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no correct verdicts within %s (%s)", startTimeout, last)
		case <-ended:
			return 0, fmt.Errorf("the program ended: %w (%s)", p.result, last)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// cpu is the CPU time of a peer and of the API server.
type cpu struct{ webhook, server time.Duration }

func (c cpu) minus(other cpu) cpu { return cpu{c.webhook - other.webhook, c.server - other.server} }

// cpu returns the CPU time until now.
func (u *contender) cpu(server int) (c cpu, err error) {
	if c.server, err = cpuOf(server); err != nil || u.process == nil {
		return c, err
	}
	c.webhook, err = cpuOf(u.pid())
	return c, err
}
