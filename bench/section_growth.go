package main

// This file measures how cost and patches grow with the pod.

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// sectionContainers shows how the cost grows with the pod. It must stay linear, and the ratio must not get worse.
func sectionContainers(r *report, p plan) error {
	captured, err := loadReview(middle)
	if err != nil {
		return err
	}
	r.title("In process, one injection into 1 to 100 containers")
	r.line("%10s %10s %14s %17s %20s %10s", "containers", "pod KB", "ours us/op", "ours us/container", "Defaulter us/op", "ratio")
	for _, n := range []int{1, 3, 10, 30, 100} {
		rev, err := captured.withContainers(n)
		if err != nil {
			return err
		}
		works, err := worksFor(peersNamed(nameOurs, nameDefaulter), spec{injection(), wanted, rev})
		if err != nil {
			return err
		}
		measure(plan{max(p.rounds/2, 3), p.slice}, works...)
		us := quartiles(works[0].cpu).median
		r.line("%10d %10.0f %14.1f %17.1f %20.1f %10.3f", n, float64(len(rev.raw))/1024, us, us/float64(n),
			quartiles(works[1].cpu).median, works[0].ratioTo(works[1]).median)
	}
	return nil
}

// insertionBound is the number of operations that an insertion needs.
const insertionBound = 1

// sectionInsertion compares patches for an item that is inserted at the head of a long list. A comparison of JSON
// pairs list items by index. It finds that all have changed, and the API server has to apply all these changes.
func sectionInsertion(r *report) error {
	captured, err := loadReview(middle)
	if err != nil {
		return err
	}
	r.title("Patches for one item inserted at the head of a list")
	r.line("%-22s %-12s %8s %10s %14s", "", "", "ops", "bytes", "apply ms")
	for _, c := range []struct {
		name       string
		containers int
		prepare    func(*corev1.Pod)
		insert     func(*corev1.Pod)
	}{
		{"into 1000 variables", 1, func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = nil
			for i := range 1000 {
				p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: "some value"})
			}
		}, func(p *corev1.Pod) {
			env := &p.Spec.Containers[0].Env
			*env = slices.Insert(*env, 0, corev1.EnvVar{Name: "FIRST", Value: "first"})
		}},
		{"into 100 containers", 100, func(*corev1.Pod) {}, func(p *corev1.Pod) {
			p.Spec.Containers = slices.Insert(p.Spec.Containers, 0, corev1.Container{Name: "first", Image: "registry.example.org/bench/first:1"})
		}},
	} {
		rev, err := captured.withContainers(c.containers)
		if err != nil {
			return err
		}
		before := rev.pod
		c.prepare(before)
		raw, err := json.Marshal(before)
		if err != nil {
			return err
		}
		after := before.DeepCopy()
		c.insert(after)
		text, err := json.Marshal(after)
		if err != nil {
			return err
		}
		theirs, err := jsonpatch.CreatePatch(raw, text)
		if err != nil {
			return err
		}
		us, err := patch.Diff(raw, before, after)
		if err != nil {
			return err
		}
		for _, p := range []struct {
			name string
			ops  []jsonpatch.Operation
		}{{"CreatePatch", theirs}, {nameOurs, us}} {
			wire := patch.AppendJSON(nil, p.ops)
			took, err := apply(raw, wire)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, p.name, err)
			}
			r.line("%-22s %-12s %8d %10d %14.2f", c.name, p.name, len(p.ops), len(wire), took.Seconds()*1e3)
		}
		r.judge(float64(len(us)), insertionBound, "insertion at the head %s: our operations", c.name)
	}
	return nil
}

// apply measures the API server's part: the best of three, because it is short.
func apply(raw, wire []byte) (time.Duration, error) {
	best := time.Hour
	for range 3 {
		before := processCPU()
		p, err := jsonpatchv4.DecodePatch(wire)
		if err != nil {
			return 0, err
		}
		if _, err := p.Apply(raw); err != nil {
			return 0, err
		}
		best = min(best, processCPU()-before)
	}
	return best, nil
}
