package main

// This file is the server process that is attacked.

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// hostilePath is the path on which the attacked server serves the injection, for every pod.
const hostilePath = admit.MutatePrefix + "hostile?timeout=10s"

// hungConversion is the path of a conversion that never ends.
const hungConversion = admit.ConvertPrefix + "hung.bench.example.org"

// serveHostile runs the server as a Manager creates it, without a cluster. It ends when its standard input ends.
func serveHostile(ctx context.Context, in io.Reader, out io.Writer) error {
	quiet()
	certificate, bundle, err := servingCertificate()
	if err != nil {
		return err
	}
	log := zapr.NewLogger(quietLogger())
	registry := prometheus.NewRegistry()
	metrics, err := admit.NewMetrics(registry)
	if err != nil {
		return err
	}
	others := http.NewServeMux()
	others.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	handler := &admit.Handler{MaxBytes: 32 << 20, Log: log, Metrics: metrics, Others: others}
	entry := chain.Config{}
	for _, s := range injection() {
		entry.Steps = append(entry.Steps, mutationOf(s))
	}
	handler.Serve(admit.MutatePrefix+"hostile", entry)
	serveShadows(handler)
	handler.Convert(map[string]admit.Conversion{
		conversionPath: {Name: "jobs.bench.example.org", Answer: jobs(false, jobToHub).Answer},
		hungConversion: {Name: "hung.bench.example.org", Answer: jobs(false, func(context.Context, runtime.Object) (runtime.Object, error) { select {} }).Answer},
	})
	server := &serving.Server{
		Host: "127.0.0.1", Handler: handler, Log: log, Ready: func() error { return nil },
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(hello{"https://" + server.Addr().String(), bundle}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); { // lines on standard input are ignored
	}
	ended, end := context.WithCancel(ctx)
	end() // requests in flight are the attacker's, so Shutdown need not wait
	_ = server.Shutdown(ended)
	return nil
}

// mutationOf returns a step as a Manager makes it of a Mutation.
func mutationOf(s step) chain.Step {
	return chain.Step{
		Name: s.name, New: func() runtime.Object { return &corev1.Pod{} },
		Mutates: true, Run: func(_ context.Context, _ *chain.Call, _, obj runtime.Object) error {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return fmt.Errorf("got a %T", obj)
			}
			s.edit(pod)
			return nil
		},
	}
}

const (
	besideShadow = "beside-shadow" // a shadow that hangs, and one that is quick
	hangs        = "hangs"
)

var hungModes = []chain.Mode{chain.ModeDeny, chain.ModeWarn, chain.ModeAudit, chain.ModeShadow}

func hungWebhooks() (all []string) {
	for _, mode := range hungModes {
		all = append(all, "hangs-"+strings.ToLower(mode.String()))
	}
	return all
}

// serveShadows serves the webhooks of sectionShadows.
func serveShadows(handler *admit.Handler) {
	five, shadowed := chain.Config{}, chain.Config{}
	for i, s := range smallSteps(5) {
		idle := mutationOf(step{fmt.Sprintf("idle-%d", i), func(*corev1.Pod) {}})
		idle.Mode = chain.ModeShadow
		five.Steps = append(five.Steps, mutationOf(s))
		shadowed.Steps = append(shadowed.Steps, mutationOf(s), idle)
	}
	handler.Serve(admit.MutatePrefix+fiveSteps, five)
	handler.Serve(admit.MutatePrefix+withShadows, shadowed)
	hung := mutationOf(step{hangs, func(*corev1.Pod) { select {} }})
	quick := mutationOf(step{"quick", func(p *corev1.Pod) { p.Labels = nil }})
	hung.Mode, hung.Timeout, quick.Mode = chain.ModeShadow, 30*time.Second, chain.ModeShadow
	handler.Serve(admit.MutatePrefix+besideShadow, chain.Config{Steps: []chain.Step{hung, quick}})
	for i, webhook := range hungWebhooks() {
		s := mutationOf(step{webhook, func(*corev1.Pod) { select {} }})
		s.Mode, s.Timeout = hungModes[i], 100*time.Millisecond
		handler.Serve(admit.MutatePrefix+webhook, chain.Config{Steps: []chain.Step{s}})
	}
}
