package main

// This file loads and varies the captured AdmissionReviews.

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

//go:embed testdata/*.json
var captured embed.FS

// sizes are the captured reviews, smallest first, named after the size of their object in JSON.
var sizes = []string{"4KB", "22KB", "310KB"}

// middle is the size for measurements that use only one.
const middle = "22KB"

// review is an AdmissionReview as the API server sends it.
type review struct {
	name string
	body []byte      // the whole request
	uid  string      // the uid of the request
	raw  []byte      // the pod in the request, byte for byte
	pod  *corev1.Pod // the same pod, decoded
}

func newReview(name string, body []byte) (*review, error) {
	var ar admissionv1.AdmissionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &ar); err != nil {
		return nil, fmt.Errorf("review %s: %w", name, err)
	}
	if ar.Request == nil {
		return nil, fmt.Errorf("review %s holds no request", name)
	}
	pod := &corev1.Pod{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(ar.Request.Object.Raw, pod); err != nil {
		return nil, fmt.Errorf("review %s: %w", name, err)
	}
	return &review{name: name, body: body, uid: string(ar.Request.UID), raw: ar.Request.Object.Raw, pod: pod}, nil
}

// loadReview reads a captured review.
func loadReview(size string) (*review, error) {
	body, err := captured.ReadFile("testdata/pod-" + size + ".json")
	if err != nil {
		return nil, fmt.Errorf("%w; capture it with: go run . -capture", err)
	}
	return newReview(size, bytes.TrimSpace(body))
}

// withContainers makes a review of a pod with n containers from a review with any number. It repeats the first
// container, and its entries in managedFields, under other names.
func (r *review) withContainers(n int) (*review, error) {
	var ar map[string]any
	if err := json.Unmarshal(r.body, &ar); err != nil {
		return nil, err
	}
	object := at(ar, "request", "object")
	first := r.pod.Spec.Containers[0].Name
	list, _ := at(object, "spec")["containers"].([]any)
	if len(list) == 0 {
		return nil, fmt.Errorf("review %s has no container", r.name)
	}
	containers := make([]any, 0, n)
	for i := range n {
		clone := map[string]any{}
		for k, v := range at(list[0]) {
			clone[k] = v
		}
		clone["name"] = fmt.Sprintf("%s-%d", first, i)
		containers = append(containers, clone)
	}
	at(object, "spec")["containers"] = containers
	entries, _ := at(object, "metadata")["managedFields"].([]any)
	for _, e := range entries {
		fields := at(e, "fieldsV1", "f:spec", "f:containers")
		told, ok := fields[fmt.Sprintf("k:{\"name\":%q}", first)]
		if !ok {
			continue
		}
		clear(fields)
		for i := range n {
			fields[fmt.Sprintf("k:{\"name\":\"%s-%d\"}", first, i)] = told
		}
	}
	body, err := json.Marshal(ar)
	if err != nil {
		return nil, err
	}
	return newReview(fmt.Sprintf("%d containers", n), body)
}

// at follows a path through nested objects. If the path does not exist, it returns a nil map, which reads as empty.
func at(tree any, path ...string) map[string]any {
	m, _ := tree.(map[string]any)
	for _, p := range path {
		m, _ = m[p].(map[string]any)
	}
	return m
}
