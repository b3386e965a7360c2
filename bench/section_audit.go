package main

// This file measures an audit of many pods: the time on one core, and the memory above that of an idle program.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// The bounds are for 50,000 pods of 4 KB. Memory is above that of the idle process.
const (
	auditMiBBound    = 64
	auditSecondBound = 120
	auditNamespace   = "bench-audit"
	auditSize        = "4KB"
	auditCreators    = 16
)

// audited is the result of the process that audits.
type audited struct {
	Took, CPU       time.Duration
	IdleMiB, MaxMiB float64 // resident, at its start and at most
	Objects, Drift  int
	Denied          int
}

// sectionAudit creates pods, and audits them with one Mutation and one Validation in a process of its own.
func sectionAudit(ctx context.Context, r *report, pods int) (err error) {
	if os.Getenv(assetsVariable) == "" {
		r.skip("an audit", assetsVariable+" is not set (make assets builds the binaries and prints their folder)")
		return nil
	}
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	began := time.Now()
	bytesEach, err := createPods(ctx, plane.Config(), pods)
	if err != nil {
		return err
	}
	r.title("An audit of %d pods of %.1f KB, created in %.0f s", pods, float64(bytesEach)/1024, time.Since(began).Seconds())
	a, err := auditInProcess(ctx, plane.Kubeconfig())
	if err != nil {
		return err
	}
	if a.Objects != pods || a.Drift != pods || a.Denied != pods/2 {
		return fmt.Errorf("of %d pods, %d were asked about, %d drift and %d are denied", pods, a.Objects, a.Drift, a.Denied)
	}
	r.line("%-40s %10.1f", "wall time, s", a.Took.Seconds())
	r.line("%-40s %10.1f", "CPU time of the process, s", a.CPU.Seconds())
	r.line("%-40s %10.3f", "CPU time for each object, ms", a.CPU.Seconds()*1e3/float64(pods))
	r.line("%-40s %10.1f", "resident when idle, MiB", a.IdleMiB)
	r.line("%-40s %10.1f", "resident at most, MiB", a.MaxMiB)
	r.judge(a.Took.Seconds(), auditSecondBound, "audit of %d pods: seconds on one core", pods)
	r.judge(a.MaxMiB-a.IdleMiB, auditMiBBound, "audit of %d pods: MiB above idle", pods)
	return nil
}

// createPods creates pods, half of them with a label, and returns the size of one in a list.
func createPods(ctx context.Context, config *rest.Config, pods int) (size int, err error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	if _, err := clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: auditNamespace}}, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	rev, err := loadReview(auditSize)
	if err != nil {
		return 0, err
	}
	c, err := newCreator(config, rev)
	if err != nil {
		return 0, err
	}
	url, next := c.host+"/api/v1/namespaces/"+auditNamespace+"/pods", atomic.Int64{}
	group, ctx := errgroup.WithContext(ctx)
	for range auditCreators {
		group.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= pods {
					return nil
				}
				text, err := c.send(ctx, http.MethodPost, url, c.head+auditPodName(n)+c.tail)
				if err != nil {
					return err
				}
				if n == 0 {
					size = len(text)
				}
			}
		})
	}
	return size, group.Wait()
}

// auditPodName returns the name of a pod. The names of one half end with a letter that the Validation denies.
func auditPodName(n int) string { return fmt.Sprintf("pod-%06d-%c", n, "ab"[n%2]) }

// auditInProcess runs this program as one that audits, with one core.
func auditInProcess(ctx context.Context, kubeconfig string) (a audited, err error) {
	program, err := os.Executable()
	if err != nil {
		return a, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-audit", "-kubeconfig", kubeconfig)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "GOMAXPROCS=1"), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return a, fmt.Errorf("the process that audits: %w", err)
	}
	return a, json.Unmarshal(out.Bytes(), &a)
}

// auditOnce is that process. It prints an audited.
func auditOnce(ctx context.Context, kubeconfig string, out io.Writer) error {
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: auditNamespace, Host: "127.0.0.1", OperatorFingerprint: auditNamespace, KubeConfig: kubeconfig, Logger: quietLogger().Sugar(),
	})
	edit := injection()[0].edit
	mutation := eirinix.Mutation[*corev1.Pod]{ID: "inject", Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
		edit(pod)
		return nil
	}}
	check := func(pod *corev1.Pod) error {
		if strings.HasSuffix(pod.Name, "-b") {
			return eirinix.Deny("its name ends with b")
		}
		return nil
	}
	validation := eirinix.Validation[*corev1.Pod]{
		ID:     "check",
		Create: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error { return check(pod) },
		Update: func(_ context.Context, _ *eirinix.Call, _, pod *corev1.Pod) error { return check(pod) },
	}
	if err := errors.Join(m.AddExtension(mutation), m.AddExtension(validation)); err != nil {
		return err
	}
	if _, err := m.GetKubeClient(); err != nil {
		return err
	}
	runtime.GC()
	// 5 sets the peak of the resident memory back to its present value.
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	idle, err := residentOf("self", "VmRSS")
	if err != nil {
		return err
	}
	began, cpu := time.Now(), processCPU()
	summary, err := audit.Run(ctx, m, audit.Options{Finding: func(audit.Finding) error { return nil }})
	if err != nil {
		return err
	}
	a := audited{
		Took: time.Since(began), CPU: processCPU() - cpu, IdleMiB: idle,
		Objects: summary.Objects, Drift: summary.Findings["inject"][audit.Drift], Denied: summary.Findings["check"][audit.Denied],
	}
	if a.MaxMiB, err = residentOf("self", "VmHWM"); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(a)
}
