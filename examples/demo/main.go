// Demo shows the library at work in a minute. It starts its own Kubernetes control plane (or uses an existing one, with
// -kubeconfig), registers an extension, and shows its effect on a pod and on a Deployment. It leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
)

// settings holds the options from the command line and the terminal.
type settings struct {
	kubeconfig string
	host       string
	once       bool
	verbose    bool
	colour     bool
}

func main() {
	log.SetFlags(0)
	s := settings{}
	flag.StringVar(&s.kubeconfig, "kubeconfig", "",
		"`path` of the kubeconfig of a cluster to use, in a namespace of its own that is deleted at the end; without it a control plane is started on this machine ($KUBECONFIG is not looked at)")
	flag.StringVar(&s.host, "host", "",
		"`name` or IP address of this machine as the API server sees it (default 127.0.0.1 for an API server on this machine, else the address that routes to it)")
	flag.BoolVar(&s.once, "once", false, "end when everything was shown, without colours, as when the output is not a terminal")
	flag.BoolVar(&s.verbose, "v", false, "show the Manager's log on standard error")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("demo: unexpected argument %q; see -help", flag.Arg(0))
	}
	if !isTerminal(os.Stdout) {
		s.once = true
	}
	s.colour = !s.once && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"

	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, release) // a second Ctrl-C ends the program at once
	// A closed pipe (| head) must not prevent the cleanup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err := run(ctx, s, printer{w: os.Stdout, colour: s.colour}); err != nil {
		log.Fatal("demo: ", err)
	}
}

// run runs the demo from beginning to end. It removes everything that it has created before it returns, also after an
// error.
func run(ctx context.Context, s settings, out printer) (err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("interrupted (%w)", err)
		}
	}()
	logs := newLogs(s.verbose)
	defer func() {
		if err != nil && ctx.Err() == nil {
			logs.show(os.Stderr)
		}
	}()

	out.title("eirinix demo")
	if s.kubeconfig == "" {
		if err := showInMemory(out); err != nil {
			return err
		}
		out.title("\nA real API server")
	}
	c, err := openCluster(ctx, s, out)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(os.Stderr, "cleaning up (a second Ctrl-C would leave things as they are)")
		err = errors.Join(err, c.close())
	}()

	// Before the webhook is registered, a dry run shows the pod that the API server would store without it.
	plain, err := c.rehearse(ctx)
	if err != nil {
		return err
	}
	w, err := startWebhook(ctx, c, logs, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()

	if err := showPod(ctx, c, plain, out); err != nil {
		return w.explain(err)
	}
	if err := showDeployment(ctx, c, out); err != nil {
		return w.explain(err)
	}
	if err := showRegistered(ctx, c, w, out); err != nil {
		return err
	}
	out.good("\nEvery pod was mutated.")
	if s.once {
		return nil
	}
	out.line("Try it yourself, in another terminal:\n\n  kubectl --kubeconfig=%s -n %s run mine --image=busybox -o yaml -- sleep 3600\n\nCtrl-C ends the demo and removes everything.",
		quote(c.kubeconfig), c.namespace)
	select {
	case <-ctx.Done():
		return nil
	case err := <-w.ended:
		w.ended <- err // for stop
		return errors.New("the Manager ended by itself")
	}
}
