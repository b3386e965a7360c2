package main

// This file measures the memory of Secrets that a step looks at, beside that of controller-runtime's cache as it comes.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const (
	readsNamespace = "bench-reads"
	readsCreators  = 16
	readsLookups   = 20_000

	// The bounds are for 15,000 Secrets of 4 KB, of which a step keeps three keys.
	readsMiBBound    = 8
	readsLookupBound = 0.5 // of controller-runtime's time
	readsBytes       = 4 << 10
)

// The processes that section reads starts.
const (
	readsIdle      = "idle"      // a Manager with a step that looks at nothing
	readsKept      = "kept"      // the step looks at three keys of each Secret
	readsWhole     = "whole"     // the step looks at whole Secrets
	readsEmptyPeer = "emptypeer" // controller-runtime's cache without an informer
	readsPeer      = "peer"      // controller-runtime's cache as it comes
)

// held is the result of such a process.
type held struct {
	Resident, Most float64 // MiB
	Heap           float64 // MiB in use
	Started        time.Duration
	Lookup         time.Duration // of one Secret by an index
	Objects        int
}

// sectionReads creates Secrets, and starts a process for each way to hold them.
func sectionReads(ctx context.Context, r *report, secrets int) (err error) {
	if os.Getenv(assetsVariable) == "" {
		r.skip("objects that steps look at", assetsVariable+" is not set (make assets builds the binaries and prints their folder)")
		return nil
	}
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	began := time.Now()
	if err := createSecrets(ctx, plane.Config(), secrets); err != nil {
		return err
	}
	r.title("%d Secrets of %d KB that a step looks at, created in %.0f s", secrets, readsBytes>>10, time.Since(began).Seconds())
	r.line("%-48s %9s %9s %9s %9s %9s", "", "heap", "resident", "most", "start", "lookup")
	all := map[string]held{}
	for _, way := range []struct{ name, text string }{
		{readsIdle, "a Manager, nothing looked at"},
		{readsKept, "three keys by Read.Transform"},
		{readsWhole, "whole Secrets"},
		{readsEmptyPeer, "controller-runtime's cache, empty"},
		{readsPeer, "controller-runtime's cache as it comes"},
	} {
		h, err := holdInProcess(ctx, plane.Kubeconfig(), way.name)
		if err != nil {
			return fmt.Errorf("%s: %w", way.text, err)
		}
		if looks := way.name != readsIdle && way.name != readsEmptyPeer; looks && h.Objects != secrets {
			return fmt.Errorf("%s: %d of %d Secrets are held", way.text, h.Objects, secrets)
		}
		all[way.name] = h
		r.line("%-48s %5.1f MiB %5.1f MiB %5.1f MiB %6.2f s %6.2f us", way.text, h.Heap, h.Resident, h.Most, h.Started.Seconds(), float64(h.Lookup.Nanoseconds())/1e3)
	}
	above := all[readsKept].Heap - all[readsIdle].Heap
	r.judge(above, readsMiBBound, "three keys of %d Secrets: MiB of heap above idle", secrets)
	peer := all[readsPeer].Heap - all[readsEmptyPeer].Heap
	r.judge(above/peer, 0.2, "the same, in proportion to controller-runtime's cache as it comes")
	r.judge((all[readsWhole].Heap-all[readsIdle].Heap)/peer, 1, "whole Secrets, in proportion to that cache")
	r.judge(all[readsKept].Lookup.Seconds()/all[readsPeer].Lookup.Seconds(), readsLookupBound, "a lookup with its result, in proportion to that cache")
	return nil
}

// createSecrets creates Secrets with three short keys and a long one.
func createSecrets(ctx context.Context, config *rest.Config, secrets int) error {
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: readsNamespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	long, next := bytes.Repeat([]byte("x"), readsBytes-300), atomic.Int64{}
	group, ctx := errgroup.WithContext(ctx)
	for range readsCreators {
		group.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= secrets {
					return nil
				}
				_, err := clients.CoreV1().Secrets(readsNamespace).Create(ctx, &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("database-%06d", n), Labels: map[string]string{"app": "bench"}},
					Data: map[string][]byte{
						"username": fmt.Appendf(nil, "user-%06d", n), "password": fmt.Appendf(nil, "password-%020d", n),
						"host": fmt.Appendf(nil, "db-%06d.example.com", n), "ca.crt": long,
					},
				}, metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// holdInProcess runs this program as one that holds the Secrets.
func holdInProcess(ctx context.Context, kubeconfig, way string) (h held, err error) {
	program, err := os.Executable()
	if err != nil {
		return h, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-reads", way, "-kubeconfig", kubeconfig)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return h, fmt.Errorf("the process that holds Secrets: %w", err)
	}
	return h, json.Unmarshal(out.Bytes(), &h)
}

// hold is that process. It prints a held.
func hold(ctx context.Context, way, kubeconfig string, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	var h held
	end := func() error { return nil }
	if way == readsPeer || way == readsEmptyPeer {
		err = h.cache(ctx, config, way == readsPeer)
	} else {
		end, err = h.manager(ctx, config, way)
	}
	if err != nil {
		return errors.Join(err, end())
	}
	debug.FreeOSMemory()
	debug.FreeOSMemory() // what finalizers have released
	if h.Resident, err = residentOf("self", "VmRSS"); err != nil {
		return err
	}
	if h.Most, err = residentOf("self", "VmHWM"); err != nil {
		return err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.Heap = float64(m.HeapAlloc) / (1 << 20)
	return errors.Join(json.NewEncoder(out).Encode(h), end())
}

// cache starts controller-runtime's cache, and fills it with the Secrets.
func (h *held) cache(ctx context.Context, config *rest.Config, filled bool) error {
	c, err := cache.New(config, cache.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return err
	}
	go func() { _ = c.Start(ctx) }()
	if !filled {
		return nil
	}
	byHost := func(o client.Object) []string { return []string{string(o.(*corev1.Secret).Data["host"])} }
	if err := c.IndexField(ctx, &corev1.Secret{}, "host", byHost); err != nil {
		return err
	}
	c.WaitForCacheSync(ctx) // it has started
	began := time.Now()
	var all corev1.SecretList
	if err := c.List(ctx, &all, client.InNamespace(readsNamespace)); err != nil {
		return err
	}
	h.Started, h.Objects = time.Since(began), len(all.Items)
	h.Lookup, err = lookups(ctx, c, len(all.Items))
	return err
}

// manager runs a Manager, whose step looks at the Secrets, until end is called.
func (h *held) manager(ctx context.Context, config *rest.Config, way string) (end func() error, err error) {
	began := time.Now()
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: readsNamespace, WebhookNamespace: "default", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", OperatorFingerprint: "bench-" + way,
		RestConfig: config, Logger: quietLogger().Sugar(), UnregisterOnStop: true,
	})
	var once sync.Once
	failed := make(chan error, 1)
	step := eirinix.Validation[*corev1.ConfigMap]{
		ID: "looks",
		Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.ConfigMap) error {
			once.Do(func() {
				if way == readsIdle {
					failed <- nil
					return
				}
				var all corev1.SecretList
				err := c.Reader().List(ctx, &all, client.InNamespace(readsNamespace))
				if h.Objects = len(all.Items); err == nil {
					h.Lookup, err = lookups(ctx, c.Reader(), h.Objects)
				}
				failed <- err
			})
			return nil
		},
	}
	if way != readsIdle {
		step.Settings.Reads = []eirinix.Read{readOfSecrets(way)}
	}
	ended := make(chan error, 1)
	end = func() error { m.Stop(); return <-ended }
	if err := m.AddExtension(step); err != nil {
		return func() error { return nil }, err
	}
	go func() { ended <- m.Run(ctx) }()
	select {
	case <-m.Ready():
	case err := <-ended:
		return func() error { return nil }, err
	}
	h.Started = time.Since(began)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return end, err
	}
	_, err = clients.CoreV1().ConfigMaps(readsNamespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "asks-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return end, err
	}
	return end, <-failed
}

// readOfSecrets declares the Secrets.
func readOfSecrets(way string) eirinix.Read {
	read := eirinix.Read{
		Object: &corev1.Secret{}, Namespaces: []string{readsNamespace},
		Index: map[string]client.IndexerFunc{"host": func(o client.Object) []string {
			secret, ok := o.(*corev1.Secret)
			if !ok {
				return nil
			}
			return []string{string(secret.Data["host"])}
		}},
	}
	if way == readsKept {
		read.Transform = func(o client.Object) {
			if secret, ok := o.(*corev1.Secret); ok {
				secret.Data = map[string][]byte{"username": secret.Data["username"], "password": secret.Data["password"], "host": secret.Data["host"]}
			}
		}
	}
	return read
}

// lookups measures how long it takes to find a Secret by an index, and to copy it.
func lookups(ctx context.Context, from client.Reader, secrets int) (time.Duration, error) {
	var list corev1.SecretList
	began := time.Now()
	for i := range readsLookups {
		n := i * 7919 % secrets
		if err := from.List(ctx, &list, client.MatchingFields{"host": fmt.Sprintf("db-%06d.example.com", n)}); err != nil || len(list.Items) != 1 {
			return 0, fmt.Errorf("%d Secrets: %w", len(list.Items), err)
		}
	}
	return time.Since(began) / readsLookups, nil
}
