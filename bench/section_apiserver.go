package main

// This file measures the latency that webhooks add to requests to an API server.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// assetsVariable is the environment variable for the folder with etcd and kube-apiserver.
const assetsVariable = "KUBEBUILDER_ASSETS"

const (
	tenBound = 0.08 // of the latency that ten controller-runtime webhooks add
	oneBound = 1.0  // of the latency that one controller-runtime webhook adds
)

// set is a set of webhooks that is registered for its own namespace. So all sets exist in one API server at the same
// time, and a round creates one pod in each.
type set struct {
	name      string
	namespace string
	urls      []string
	steps     int
	latency   []float64 // milliseconds per round
}

// sectionAPIServer measures the latency that webhooks add to the creation of a pod through a real API server. Each
// webhook that patches costs the API server an encoding, a patch and a decoding, however fast the webhook is.
func sectionAPIServer(ctx context.Context, r *report, creates int) (err error) {
	if os.Getenv(assetsVariable) == "" {
		r.skip("creates through an API server", assetsVariable+" is not set (make assets builds the binaries and prints their folder)")
		return nil
	}
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	clients, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		return err
	}
	for _, s := range setsOf(hello{}) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
		if _, err := clients.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	server, err := startChild("-kubeconfig", plane.Kubeconfig())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	rev, err := loadReview(middle)
	if err != nil {
		return err
	}
	sets := setsOf(server.hello)
	for _, s := range sets {
		if len(s.urls) == 0 { // no webhook, or the Manager has registered itself
			continue
		}
		configuration := webhookConfiguration(s.namespace, s.namespace, server.Bundle, s.urls)
		if _, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	creator, err := newCreator(plane.Config(), rev)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if err := creator.awaitWebhooks(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	const warmUp = 5
	for round := range warmUp + creates {
		for i := range sets {
			s := sets[(round+i)%len(sets)]
			took, err := creator.create(ctx, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round >= warmUp {
				s.latency = append(s.latency, float64(took.Nanoseconds())/1e6)
			}
		}
	}
	judgeSets(r, rev.name, sets)
	return nil
}

func setsOf(h hello) []*set {
	tenOf := func(peer string) (urls []string) {
		for i := range chainLength {
			urls = append(urls, h.at(stepPath(peer, i)+"/"))
		}
		return urls
	}
	return []*set{
		{name: "no webhook", namespace: "bench-none"},
		{name: "one Defaulter", namespace: "bench-one", steps: 1, urls: tenOf(nameDefaulter)[:1]},
		{name: "ten Defaulters", namespace: "bench-ten", steps: chainLength, urls: tenOf(nameDefaulter)},
		{name: "ours, ten webhooks", namespace: "bench-ours-ten", steps: chainLength, urls: tenOf(nameOurs)},
		{name: "ours, a Manager with ten", namespace: managerNamespace, steps: chainLength},
	}
}

// judgeSets prints the latency that each set adds, round by round, to a pod without webhooks.
func judgeSets(r *report, size string, sets []*set) {
	r.title("Creates through the API server, %s pod: latency in ms", size)
	r.line("%-28s %9s %12s   %s", "", "p50", "added p50", "(quartiles)")
	added := make([]float64, len(sets))
	for i, s := range sets {
		differences := make([]float64, len(s.latency))
		for round := range differences {
			differences[round] = s.latency[round] - sets[0].latency[round]
		}
		q := quartiles(differences)
		added[i] = q.median
		r.line("%-28s %9.2f %12.2f   (%.2f-%.2f)", s.name, quartiles(s.latency).median, q.median, q.low, q.high)
	}
	one, ten, us := added[1], added[2], added[len(added)-1]
	r.judge(us/ten, tenBound, "API server, %s: latency added, our Manager with ten/ten Defaulters", size)
	r.judge(us/one, oneBound, "API server, %s: latency added, our Manager with ten/one Defaulter", size)
}

// stepsDone counts the steps that have changed a pod.
func stepsDone(text []byte) (int, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		return 0, err
	}
	done := 0
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Value == stepValue {
			done++
		}
	}
	return done, nil
}
