package main

// This file plays the image agnhost: it takes its arguments, and serves its paths with a certificate that others made,
// for webhooks that others registered. It needs no cluster.

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/zapr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/offline"
)

// late is the endpoint that is slower than a webhook's timeout.
const late = "always-allow-delay-5s"

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute // longer than the 90 s after which an API server closes an idle connection
	drainTimeout  = 30 * time.Second
)

// The subcommands of the image.
const (
	webhook        = "webhook"
	convertWebhook = "crd-conversion-webhook"
)

// serve serves until SIGINT or SIGTERM. args are those of agnhost after the subcommand.
func serve(subcommand string, args []string) error {
	flags := flag.NewFlagSet("agnhost "+subcommand, flag.ExitOnError)
	certFile := flags.String("tls-cert-file", "", "path of the serving certificate, PEM, with its chain")
	keyFile := flags.String("tls-private-key-file", "", "path of its private key, PEM")
	port := flags.Int("port", 443, "port to listen on, at all addresses")
	sidecar := flags.String("sidecar-image", sidecarImage, sidecarUsage)
	flags.Int("v", 0, "accepted and ignored: the verbosity of agnhost's log")
	_ = flags.Parse(args) // exits on error
	if *certFile == "" || *keyFile == "" {
		return fmt.Errorf("agnhost %s: give --tls-cert-file and --tls-private-key-file", subcommand)
	}

	var handler http.Handler
	var err error
	if subcommand == convertWebhook {
		handler, err = converting()
	} else {
		handler, err = original(endpoints{sidecarImage: *sidecar, othersRegister: true})
	}
	if err != nil {
		return err
	}
	certificates, err := certwatcher.New(*certFile, *keyFile)
	if err != nil {
		return fmt.Errorf("agnhost %s: --tls-cert-file and --tls-private-key-file must be a certificate and its key: %w", subcommand, err)
	}
	server := &http.Server{
		Addr: net.JoinHostPort("", strconv.Itoa(*port)), Handler: handler,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	return run(server, certificates)
}

// original returns a handler with the paths of the original, in front of the library's.
func original(e endpoints) (http.Handler, error) {
	played, err := play(e.steps()...)
	if err != nil {
		return nil, err
	}
	mux := newMux()
	serves := func(name string, config admissionregistrationv1.WebhookClientConfig) {
		step, _, _ := strings.Cut(name, ".")
		mux.Handle(pathOf(step), at(config, step, played.Handler))
	}
	for _, w := range played.Mutating.Webhooks {
		serves(w.Name, w.ClientConfig)
	}
	for _, w := range played.Validating.Webhooks {
		serves(w.Name, w.ClientConfig)
	}
	return mux, nil
}

// play returns what a Manager with these steps serves. Its log is also that of the certificate's files.
func play(steps ...any) (*offline.Program, error) {
	m := eirinix.NewManager(eirinix.ManagerOptions{OperatorFingerprint: "agnhost-example"})
	for _, step := range steps {
		if err := m.AddExtension(step); err != nil {
			return nil, err
		}
	}
	logf.SetLogger(zapr.NewLogger(m.GetLogger().Desugar()))
	return offline.Of(m, offline.Options{})
}

// newMux returns a mux with the path that readiness probes call.
func newMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	return mux
}

// move sends a request to another path of a handler.
func move(w http.ResponseWriter, r *http.Request, to url.URL, handler http.Handler) {
	moved := r.WithContext(r.Context())
	moved.URL = &to
	handler.ServeHTTP(w, moved)
}

// pathOf returns the path of an endpoint. It differs from the step's name only where the path has two segments, because
// a step's name has none.
func pathOf(step string) string {
	if step == "pods-attach" {
		return "/pods/attach"
	}
	return "/" + step
}

// at sends requests to the path of the step that the configuration calls. The endpoint that is too slow does not see the
// caller's deadline: the library would answer just before it, and agnhost lets the caller's time run out.
func at(config admissionregistrationv1.WebhookClientConfig, step string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		registered, err := url.Parse(*config.URL)
		if err != nil { // no step has such a name
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		to := url.URL{Path: registered.Path, RawQuery: r.URL.RawQuery}
		if step == late {
			to.RawQuery = ""
		}
		move(w, r, to, handler)
	})
}

// run serves until SIGINT or SIGTERM and then finishes the calls in flight. It reads renewed certificates.
func run(server *http.Server, certificates *certwatcher.CertWatcher) error {
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer release()
	ended := make(chan error, 2)
	go func() {
		if err := certificates.Start(ctx); err != nil {
			ended <- fmt.Errorf("agnhost: the certificate's files cannot be watched: %w", err)
		}
	}()
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificates.GetCertificate}
	go func() { ended <- server.ListenAndServeTLS("", "") }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return server.Shutdown(draining)
}
