package main

// This file measures the peers in one process, without a network.

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// These bounds are the promised ratios of our request path to controller-runtime's typed Defaulter, for each size.
var (
	cpuBounds    = map[string]float64{"4KB": 0.15, "22KB": 0.095, "310KB": 0.10}
	idleCPUBound = map[string]float64{"4KB": 0.095, "22KB": 0.08, "310KB": 0.075} // for a Mutation that changes nothing
)

const (
	bytesBound    = 0.30
	allocsBound   = 0.15
	unwantedBound = 0.03
	chainBound    = 1.3

	// extensionBound compares a classic Extension that returns PatchFromPod with a Mutation that does the same.
	extensionBound = 1.25
)

// sectionInProcess compares all peers on the injection, without a network.
func sectionInProcess(r *report, p plan) error {
	for _, size := range sizes {
		rev, err := loadReview(size)
		if err != nil {
			return err
		}
		r.title("In process, %s pod, one injection", size)
		works, err := worksFor(peers(), spec{injection(), wanted, rev})
		if err != nil {
			return err
		}
		idle, err := checkedWork(peersNamed(nameOurs)[0], spec{[]step{{"look", func(*corev1.Pod) {}}}, wanted, rev})
		if err != nil {
			return err
		}
		idle.name = "ours, changing nothing"
		works = append(works, idle)
		measure(p, works...)
		us, base := named(works, nameOurs), named(works, nameDefaulter)
		r.table(works, base)
		r.judge(us.ratioTo(base).median, cpuBounds[size], "in process, %s: CPU, ours/Defaulter", size)
		r.judge(named(works, nameExtension).ratioTo(us).median, extensionBound, "in process, %s: CPU, our Extension/our Mutation", size)
		r.judge(idle.ratioTo(base).median, idleCPUBound[size], "in process, %s: CPU, our Mutation that changes nothing/Defaulter", size)
		r.judge(us.bytes/base.bytes, bytesBound, "in process, %s: bytes allocated, ours/Defaulter", size)
		r.judge(us.allocs/base.allocs, allocsBound, "in process, %s: allocations, ours/Defaulter", size)
	}
	return nil
}

func worksFor(peers []peer, s spec) ([]*work, error) {
	works := make([]*work, 0, len(peers))
	for _, p := range peers {
		w, err := checkedWork(p, s)
		if err != nil {
			return nil, err
		}
		works = append(works, w)
	}
	return works, nil
}

// sectionUnwanted measures pods that no step matches, which are the majority of pods. The bound refers to a Defaulter,
// which determines this itself. A handler written for the purpose, which decodes the pod and checks the label, costs a
// third of that.
func sectionUnwanted(r *report, p plan) error {
	for _, size := range sizes {
		rev, err := loadReview(size)
		if err != nil {
			return err
		}
		r.title("In process, %s pod that no step wants", size)
		works, err := worksFor(peersNamed(nameOurs, nameDefaulter, nameWebhook), spec{injection(), unwanted, rev})
		if err != nil {
			return err
		}
		us, defaulter, webhook := works[0], works[1], works[2]
		webhook.name = "cr-Webhook, decodes and lets go"
		measure(p, works...)
		r.table(works, defaulter)
		r.line("ours to the webhook that decodes and lets go: %.4f", us.ratioTo(webhook).median)
		r.judge(us.ratioTo(defaulter).median, unwantedBound, "unwanted pod, %s: CPU, ours/Defaulter", size)
	}
	return nil
}

// sectionSteps compares one chain of ten small steps with one step, and with ten calls of a peer.
func sectionSteps(r *report, p plan) error {
	for _, size := range sizes {
		rev, err := loadReview(size)
		if err != nil {
			return err
		}
		r.title("In process, %s pod, one call with ten steps beside ten calls with one", size)
		one, ten := spec{smallSteps(10)[:1], wanted, rev}, spec{smallSteps(10), wanted, rev}
		var works []*work
		for _, w := range []struct {
			peer string
			spec spec
			name string
		}{
			{nameOurs, one, "ours, one step"},
			{nameOurs, ten, "ours, a chain of ten"},
			{nameDefaulter, one, "Defaulter, one step"},
		} {
			made, err := checkedWork(peersNamed(w.peer)[0], w.spec)
			if err != nil {
				return err
			}
			made.name = w.name
			works = append(works, made)
		}
		tenCalls, err := callsInARow(peersNamed(nameDefaulter)[0], ten)
		if err != nil {
			return err
		}
		works = append(works, tenCalls)
		measure(p, works...)
		r.table(works, works[2])
		r.line("a chain of ten to ten calls: %.4f", works[1].ratioTo(tenCalls).median)
		r.judge(works[1].ratioTo(works[0]).median, chainBound, "ten steps, %s: CPU, our chain of ten/our one step", size)
	}
	return nil
}

// callsInARow simulates the API server with n webhooks: one call for each step. Here the pod does not grow from call
// to call, which favours the peer.
func callsInARow(p peer, s spec) (*work, error) {
	calls := make([]*call, 0, len(s.steps))
	for i := range s.steps {
		c, err := checkedCall(p, spec{s.steps[i : i+1], s.selects, s.review})
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return &work{name: fmt.Sprintf("%s, %d calls", p.name, len(calls)), do: func() {
		for _, c := range calls {
			c.do()
		}
	}}, nil
}
