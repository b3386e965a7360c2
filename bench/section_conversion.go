package main

// This file measures conversion webhooks.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	peerconversion "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/convert"
)

// These are the bounds for the server's CPU time on a call as a ratio to controller-runtime's handler, each net of a
// handler that reads the request and sends a prepared answer.
const (
	conversionBound       = 0.50
	forgetConversionBound = 0.35 // without the check for losses

	conversionPath = admit.ConvertPrefix + "jobs.bench.example.org"

	nameOursForgetful = "ours, Lossy"
	namePeer          = "controller-runtime"
)

// converters are the peers of section conversion.
func converters() []peer {
	return []peer{
		{nameOurs, func(spec) (http.Handler, error) { return oursConverting(false) }},
		{namePeer, func(spec) (http.Handler, error) { return crConverting(), nil }},
		{nameOursForgetful, func(spec) (http.Handler, error) { return oursConverting(true) }},
		{nameFloor, preparedConversion},
	}
}

// converterPath is where a peer converts. The library's handler finds a Conversion by its path.
func converterPath(i int) string { return fmt.Sprintf("/conversion/%d", i) }

// oursConverting is the library's handler, as the Manager builds it for a Conversion.
func oursConverting(lossy bool) (http.Handler, error) {
	metrics, err := admit.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	h := &admit.Handler{MaxBytes: 32 << 20, Log: zapr.NewLogger(quietLogger()), Metrics: metrics}
	h.Convert(map[string]admit.Conversion{conversionPath: {Name: "jobs.bench.example.org", Answer: jobs(lossy, jobToHub).Answer}})
	return onWebhookServer(h), nil
}

func jobs(lossy bool, toHub convert.Func) *convert.Kind {
	keys := &convert.Keys{}
	keys.Learn([]byte("a key of the benchmark, of 32 bytes"))
	return &convert.Kind{Group: hubVersion.Group, Kind: jobKind, Forget: lossy, Keys: keys, Versions: []convert.Version{
		{Name: hubVersion.Version, Type: reflect.TypeFor[*hubJob]()},
		{Name: spokeVersion.Version, Type: reflect.TypeFor[*spokeJob](), ToHub: toHub, FromHub: jobFromHub},
	}}
}

func jobToHub(_ context.Context, o runtime.Object) (runtime.Object, error) {
	from, ok := o.(*spokeJob)
	if !ok {
		return nil, fmt.Errorf("got a %T", o)
	}
	to := &hubJob{}
	return to, from.ConvertTo(to)
}

func jobFromHub(_ context.Context, o runtime.Object) (runtime.Object, error) {
	from, ok := o.(*hubJob)
	if !ok {
		return nil, fmt.Errorf("got a %T", o)
	}
	to := &spokeJob{}
	return to, to.ConvertFrom(from)
}

// crConverting is controller-runtime's handler for the same types.
func crConverting() http.Handler {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(hubVersion.WithKind(jobKind), &hubJob{})
	scheme.AddKnownTypeWithName(spokeVersion.WithKind(jobKind), &spokeJob{})
	return onWebhookServer(peerconversion.NewWebhookHandler(scheme, peerconversion.NewRegistry()))
}

// preparedConversion sends the answer of controller-runtime's handler to the review of the task.
func preparedConversion(s spec) (http.Handler, error) {
	c := newCall(crConverting(), s.review)
	c.template.URL = &url.URL{Path: conversionPath}
	c.do()
	answer := bytes.Clone(c.answer.body.Bytes())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}), nil
}

// sectionConversion compares the conversion of an object in which nothing is lost. Ours checks that. An API server sends
// each object in a call of its own.
func sectionConversion(r *report, p plan) (err error) {
	server, undo, err := pinnedChild(r)
	if err != nil {
		return err
	}
	defer undo()
	defer func() { err = errors.Join(err, server.stop()) }()
	client := server.client(false)
	defer client.CloseIdleConnections()
	for _, containers := range jobSizes {
		job := newJob(containers)
		rev, err := conversionOf(job)
		if err != nil {
			return err
		}
		var works []*remote
		for i, p := range converters() {
			prepared := "" // only one size has an answer
			if p.name == nameFloor {
				prepared = fmt.Sprint("/", containers)
			}
			w := &remote{work: work{name: p.name}, client: client, url: server.at(converterPath(i) + prepared + conversionPath), body: rev.body}
			_, answer, err := w.once()
			if err == nil {
				err = checkConversion(answer, rev.uid, job)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			works = append(works, w)
		}
		if err := measureRemote(p, server, works); err != nil {
			return err
		}
		r.title("Over TLS, conversion of an object of %d KB: the server's CPU time", (len(rev.body)+512)>>10)
		floor := works[len(works)-1]
		net := func(w *remote) *work {
			left := &work{name: w.name}
			for i := range w.cpu {
				left.cpu = append(left.cpu, max(w.cpu[i]-floor.cpu[i], 0))
			}
			return left
		}
		base := net(works[1])
		r.line("%-28s %11s %12s   %s", "", "CPU us/op", "op/s", "net CPU as a ratio to "+base.name+" (quartiles)")
		for i, w := range works {
			x := net(w).ratioTo(base)
			r.line("%-28s %11.1f %12.0f   %.3f (%.3f-%.3f)", w.name, quartiles(w.cpu).median, quartiles(w.rate).median, x.median, x.low, x.high)
			if bound := []float64{conversionBound, 0, forgetConversionBound, 0}[i]; bound > 0 {
				r.judge(x.median, bound, "conversion of %d KB over TLS: net CPU, %s/controller-runtime", (len(rev.body)+512)>>10, w.name)
			}
		}
	}
	return nil
}
