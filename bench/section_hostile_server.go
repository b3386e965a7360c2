package main

// This file is the server process that is attacked.

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-logr/zapr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// hostilePath is the path on which the attacked server serves the injection, for every pod.
const hostilePath = admit.MutatePrefix + "hostile?timeout=10s"

// serveHostile runs the server as a Manager creates it, without a cluster. It ends when its standard input ends.
func serveHostile(ctx context.Context, in io.Reader, out io.Writer) error {
	quiet()
	certificate, bundle, err := servingCertificate()
	if err != nil {
		return err
	}
	log := zapr.NewLogger(quietLogger())
	handler := &admit.Handler{MaxBytes: 32 << 20, Log: log}
	chain := admit.Chain{}
	for _, s := range injection() {
		chain.Steps = append(chain.Steps, admit.Step{
			Name: s.name, New: func() runtime.Object { return &corev1.Pod{} },
			Mutates: true, Run: func(_ context.Context, _ *admit.Call, _, obj runtime.Object) error {
				pod, ok := obj.(*corev1.Pod)
				if !ok {
					return fmt.Errorf("got a %T", obj)
				}
				s.edit(pod)
				return nil
			},
		})
	}
	handler.Serve(admit.MutatePrefix+"hostile", chain)
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
