package main

// This file captures AdmissionReviews from a real API server.

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// capture makes a real API server send an AdmissionReview for a pod of each size, and writes the reviews to dir.
//
// Each pod is created twice. First a deployer applies it, an operator labels it and a kubelet reports its status. Then
// it is created again with the resulting managedFields, as backup and migration tools do. The review of that CREATE is
// kept. The creator becomes the manager of all fields but the status, so two managers remain.
func capture(ctx context.Context, dir string) error {
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { _ = plane.Stop() }()
	clients, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		return err
	}
	const namespace = "bench"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := clients.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	certificate, bundle, err := servingCertificate()
	if err != nil {
		return err
	}
	bodies := make(chan []byte, 100)
	recorder := recordingWebhook(certificate, bodies)
	defer recorder.Close()
	configuration := webhookConfiguration("recorder", namespace, bundle, []string{recorder.URL + "/"})
	if _, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, size := range sizes {
		lived, err := live(ctx, clients, namespace, arrivingPod(size))
		if err != nil {
			return fmt.Errorf("%s: %w", size, err)
		}
		body, err := recreate(ctx, clients, lived, bodies)
		if err != nil {
			return fmt.Errorf("%s: %w", size, err)
		}
		r, err := newReview(size, body)
		if err != nil {
			return err
		}
		managed, err := json.Marshal(r.pod.ManagedFields)
		if err != nil {
			return err
		}
		fmt.Printf("%s: pod %d bytes, of these managedFields of %d managers %d\n", size, len(r.raw), len(r.pod.ManagedFields), len(managed))
		if err := os.WriteFile(filepath.Join(dir, "pod-"+size+".json"), append(body, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// recordingWebhook allows every request and sends the bodies to a channel.
func recordingWebhook(certificate *tls.Certificate, bodies chan<- []byte) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, uid, found := bytes.Cut(body, []byte(`"uid":"`))
		end := bytes.IndexByte(uid, '"')
		if err != nil || !found || end < 0 {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		bodies <- body
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, uid[:end])
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	return server
}

// live creates a pod and lets other managers change its mutable fields. It returns the resulting pod.
func live(ctx context.Context, clients kubernetes.Interface, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	pods := clients.CoreV1().Pods(namespace)
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	if _, err := pods.Patch(ctx, pod.Name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "deployer"}); err != nil {
		return nil, err
	}
	labels := []byte(`{"metadata":{"labels":{"operations.example.org/tier":"gold"},"annotations":{"operations.example.org/reviewed":"2026-01-31"}}}`)
	if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, labels, metav1.PatchOptions{FieldManager: "operator"}); err != nil {
		return nil, err
	}
	status := []byte(`{"status":{"conditions":[{"type":"Initialized","status":"True"},{"type":"ContainersReady","status":"False"}],"hostIP":"192.0.2.7"}}`)
	return pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
}

// recreate creates the pod again under another name, until the webhook has received its review. This takes several
// attempts, because API servers do not report when they have learned of a configuration.
func recreate(ctx context.Context, clients kubernetes.Interface, pod *corev1.Pod, bodies <-chan []byte) ([]byte, error) {
	pods := clients.CoreV1().Pods(pod.Namespace)
	again := pod.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{
		Name: pod.Name + "-0", Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations, ManagedFields: pod.ManagedFields,
	}
	again.Status = corev1.PodStatus{}
	now := int64(0)
	for range 50 {
		if _, err := pods.Create(ctx, again, metav1.CreateOptions{FieldManager: "restorer"}); err != nil {
			return nil, err
		}
		if err := pods.Delete(ctx, again.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			return nil, err
		}
		for len(bodies) > 0 {
			if body := <-bodies; bytes.Contains(body, []byte(`"name":"`+again.Name+`"`)) {
				return body, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("the API server did not call the webhook for pod %s", again.Name)
}
