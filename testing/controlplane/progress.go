package main

// This file reports the progress of a build.

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// firstTime is the expected duration, before an estimate is possible. It was measured on two cores: 5 minutes on idle
// ones, and 8:20 on busy ones with all downloads. room is the disk space with some to spare: 2.7 GB of build cache,
// 0.6 GB of sources and 0.3 GB of binaries were measured. The linker needs more while it runs.
const (
	firstTime = "5 to 9 minutes on two cores"
	room      = "about 5 GB"
)

// progress reports the progress of the build. On a terminal it rewrites one line; elsewhere it prints a line at
// intervals. Its methods are safe for concurrent use.
type progress struct {
	out      io.Writer
	interval time.Duration
	rewrite  bool

	mu         sync.Mutex // guards the fields below
	started    time.Time
	shown      time.Time
	width      int    // of the line to be rewritten, in bytes
	name, main string // of the current binary: its name, and its package
	packages   []int  // number of packages per binary
	current    int
	done       int // compiled packages of the current binary
	linking    bool
	before     int // packages of the preceding binaries
	downloaded int
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, interval: 15 * time.Second}

	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" {
			p.rewrite, p.interval = true, 500*time.Millisecond
		}
	}

	p.started, p.shown = time.Now(), time.Now()

	return p
}

// printf prints a separate line.
func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.print(fmt.Sprintf(format, args...))
}

func (p *progress) print(text string) {
	p.clear()
	fmt.Fprintln(p.out, text)
}

// finish clears the line that is being rewritten, so that an error is not printed after it on the same line.
func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.clear()
}

// listed processes the output of "go list", which downloads missing sources.
func (p *progress) listed(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if strings.HasPrefix(line, "go: downloading ") {
		p.downloaded++
		p.show(fmt.Sprintf("downloading sources: %d modules, %s", p.downloaded, p.elapsed()))
	}
}

// downloading shows how much of an archive has come. size is negative if it is not known.
func (p *progress) downloading(name string, done, size int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	const mega = 1 << 20

	text := fmt.Sprintf("downloading %s: %d MB", name, done/mega)
	if size > 0 && done <= size {
		left := time.Duration(float64(took) * float64(size-done) / float64(done))
		text += fmt.Sprintf(" of %d, %d %%, about %s left", size/mega, 100*done/size, left.Round(time.Second))
	}

	p.show(text)
}

// announce says how long a build takes and how much room it needs, before its first download.
func (p *progress) announce(version string) {
	p.printf("building a control plane of Kubernetes %s; the first time, expect %s and %s on disk, or far less "+
		"if Go's caches have most of it", version, firstTime, room)
}

// begin prints the state at intervals until the returned function is called.
func (p *progress) begin(packages []int) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.packages = packages
	p.started, p.shown = time.Now(), time.Now()

	stop, stopped := make(chan struct{}), make(chan struct{})
	ticker := time.NewTicker(p.interval)

	go func() {
		defer close(stopped)
		defer ticker.Stop()

		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				p.mu.Lock()
				p.show(p.state())
				p.mu.Unlock()
			}
		}
	}()

	return func() {
		close(stop)
		<-stopped
		p.finish()
	}
}

func (p *progress) binary(index int, b binary) {
	p.mu.Lock()
	defer p.mu.Unlock()

	// Packages in Go's build cache were never announced, but they are done too.
	p.before = sum(p.packages[:index])
	p.current, p.name, p.main, p.done, p.linking = index, b.name, b.pkg, 0, false
}

// compiled processes a line of "go build -v": the path of a package whose compilation begins.
func (p *progress) compiled(line string) {
	if !isProgress(line) || strings.HasPrefix(line, "go: ") {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.done = min(p.done+1, p.packages[p.current])
	p.linking = line == p.main // the main package comes last
}

func (p *progress) state() string {
	if p.name == "" {
		return "starting"
	}

	if p.done == 0 { // no basis for an estimate
		return fmt.Sprintf("%s: reusing packages from Go's build cache, linking, %s", p.name, p.elapsed())
	}

	text := fmt.Sprintf("%s: %d of %d packages", p.name, p.done, p.packages[p.current])
	if p.linking {
		text = p.name + ": linking"
	}

	text += ", " + p.elapsed()
	if left, ok := p.left(); ok {
		text += fmt.Sprintf(", about %s left for all", left.Round(5*time.Second))
	}

	return text
}

// left estimates the remaining time from the share of finished packages. It makes no estimate before a tenth is done.
func (p *progress) left() (time.Duration, bool) {
	done, total := p.before+p.done, sum(p.packages)
	if done*10 < total {
		return 0, false
	}

	elapsed := time.Since(p.started)

	return time.Duration(float64(elapsed) * float64(total-done) / float64(done)), true
}

func (p *progress) elapsed() string {
	return time.Since(p.started).Round(time.Second).String()
}

// show prints a state, unless the previous one was printed less than 90 % of an interval ago.
func (p *progress) show(text string) {
	if time.Since(p.shown) < p.interval*9/10 {
		return
	}

	p.shown = time.Now()

	p.clear()

	if p.rewrite {
		fmt.Fprint(p.out, text)
		p.width = len(text)
	} else {
		fmt.Fprintln(p.out, text)
	}
}

// clear erases the line that is being rewritten.
func (p *progress) clear() {
	if p.width > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}

	return total
}
