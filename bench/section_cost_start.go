package main

// This file measures part start of section cost: start time and memory of whole processes.

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/bench/cost"
)

const starts = 5

// program is one of the programs in cost/, built.
type program struct {
	name, path string
	namespace  string // of its pods
	port       int
	took       []float64 // ms until the first answer, per start
	rss        []float64 // MiB after five seconds
}

// start compares processes. It measures the time from the start of a process to its first answer, with all objects
// already in the cluster, and its memory afterwards.
func (b *costBench) start(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "eirinix-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	programs := make([]*program, 0, 2)
	for _, name := range []string{"ours", "controllerruntime"} {
		p := &program{name: name, path: filepath.Join(dir, name), namespace: "cost-start-" + name}
		if p.port, err = freePort(); err != nil {
			return err
		}
		if err := b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}); err != nil {
			return err
		}
		if text, err := exec.CommandContext(ctx, "go", "build", "-o", p.path, "./cost/"+name).CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w: %s", err, text)
		}
		programs = append(programs, p)
	}
	if err := b.registerPeer(ctx, programs[1], dir); err != nil {
		return err
	}
	for round := range 1 + starts {
		for _, p := range programs {
			took, rss, err := b.startOnce(ctx, p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if round > 0 { // in the first round, ours has registered itself
				p.took, p.rss = append(p.took, took.Seconds()*1e3), append(p.rss, rss)
			}
		}
	}
	b.title("A start with Secret and registration in place, of %d", starts)
	b.line("%-36s %12s %14s", "", "ours", "ratio to controller-runtime (quartiles)")
	for _, c := range []struct {
		name       string
		ours, peer []float64
	}{
		{"exec to the first answer, ms", programs[0].took, programs[1].took},
		{"resident after 5 s, MiB", programs[0].rss, programs[1].rss},
	} {
		x := (&work{cpu: c.ours}).ratioTo(&work{cpu: c.peer})
		b.line("%-36s %12.1f %14.3f (%.3f-%.3f)", c.name, quartiles(c.ours).median, x.median, x.low, x.high)
	}
	return nil
}

// registerPeer creates a certificate for a program that cannot register itself, and registers its webhook.
func (b *costBench) registerPeer(ctx context.Context, p *program, certs string) error {
	certificate, bundle, err := servingCertificate()
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return err
	}
	var chain bytes.Buffer
	for _, der := range certificate.Certificate {
		chain.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return errors.Join(
		os.WriteFile(filepath.Join(certs, "tls.crt"), chain.Bytes(), 0o600),
		os.WriteFile(filepath.Join(certs, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
		b.client.Create(ctx, webhookConfiguration(p.namespace, p.namespace, bundle, []string{fmt.Sprintf("https://127.0.0.1:%d/", p.port)})),
	)
}

// startOnce starts the program, sends pods until one comes back marked, and stops it.
func (b *costBench) startOnce(ctx context.Context, p *program) (took time.Duration, rss float64, err error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, p.path, b.plane.Kubeconfig(), p.namespace, strconv.Itoa(p.port), filepath.Dir(p.path))
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Signal(os.Interrupt), cmd.Wait())
		if err != nil {
			err = fmt.Errorf("%w: %s", err, said.Bytes())
		}
	}()
	for time.Since(began) < time.Minute {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "pod"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/main:1"}}},
		}
		// An error means that the call failed, because the program does not serve yet.
		if err := b.client.Create(ctx, pod, client.DryRunAll); err == nil && pod.Labels[cost.Label] != "" {
			took = time.Since(began)
			break
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return 0, 0, err
		}
	}
	if took == 0 {
		return 0, 0, errors.New("no pod was marked within a minute")
	}
	if err := pause(ctx, 5*time.Second-took); err != nil {
		return 0, 0, err
	}
	rss, err = resident(cmd.Process.Pid)
	return took, rss, err
}

// resident returns the resident memory of a process in MiB, or 0 on systems without /proc.
func resident(pid int) (float64, error) { return residentOf(strconv.Itoa(pid), "VmRSS") }

// residentOf returns a figure of a process's memory in MiB: VmRSS at present, VmHWM at most.
func residentOf(process, figure string) (float64, error) {
	text, err := os.ReadFile("/proc/" + process + "/status")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(string(text), figure+":")
	var kib float64
	_, err = fmt.Sscan(value, &kib)
	return kib / 1024, err
}
