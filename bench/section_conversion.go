package main

// This file measures conversion webhooks.

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	peerconversion "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/convert"
)

const (
	conversionBound       = 0.30 // of the CPU of controller-runtime's handler
	forgetConversionBound = 0.28 // the same, without the check for losses

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
	}
}

// oursConverting is the library's handler, as the Manager builds it for a Conversion.
func oursConverting(lossy bool) (http.Handler, error) {
	metrics, err := admit.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	h := &admit.Handler{MaxBytes: 32 << 20, Log: zapr.NewLogger(quietLogger()), Metrics: metrics}
	h.Convert(map[string]admit.Conversion{conversionPath: {Name: "jobs.bench.example.org", Answer: jobs(lossy, jobToHub).AnswerWithin}})
	return onWebhookServer(h), nil
}

func jobs(lossy bool, toHub convert.Func) *convert.Kind {
	keys := &convert.Keys{}
	keys.Learn([]byte("a key of the benchmark, of 32 bytes"))
	return &convert.Kind{Group: hubVersion.Group, Kind: jobKind, Forget: lossy, Keys: keys, Versions: []convert.Version{
		{Name: hubVersion.Version, New: func() runtime.Object { return &hubJob{} }},
		{Name: spokeVersion.Version, New: func() runtime.Object { return &spokeJob{} }, ToHub: toHub, FromHub: jobFromHub},
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

// checkedConversion returns the work of a peer whose answers have passed checkConversion.
func checkedConversion(p peer, rev *review) (*work, error) {
	h, err := p.handler(spec{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	c := newCall(h, rev)
	c.template.URL = &url.URL{Path: conversionPath}
	for range 2 { // the second call finds every pool and cache filled
		c.do()
		if c.answer.status != http.StatusOK {
			return nil, fmt.Errorf("%s: status %d: %.200s", p.name, c.answer.status, c.answer.body.Bytes())
		}
		if err := checkConversion(c.answer.body.Bytes(), rev.uid); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return &work{name: p.name, do: c.do}, nil
}

// sectionConversion compares the conversion of a list, in which nothing is lost. Ours checks that.
func sectionConversion(r *report, p plan) error {
	rev, err := conversionReview()
	if err != nil {
		return err
	}
	r.title("In process, conversion of a list of %d objects, %d KB", listLength, len(rev.body)>>10)
	var works []*work
	for _, p := range converters() {
		w, err := checkedConversion(p, rev)
		if err != nil {
			return err
		}
		works = append(works, w)
	}
	measure(p, works...)
	us, base := named(works, nameOurs), named(works, namePeer)
	r.table(works, base)
	r.judge(us.ratioTo(base).median, conversionBound, "conversion of a list: CPU, ours/controller-runtime")
	r.judge(named(works, nameOursForgetful).ratioTo(base).median, forgetConversionBound, "conversion of a list: CPU, ours with Lossy/controller-runtime")
	return nil
}
