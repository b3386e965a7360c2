package main

// This file registers webhooks and creates their serving certificate.

import (
	"crypto/tls"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// webhookConfiguration returns a configuration with one entry per URL, for pods that are created in one namespace.
func webhookConfiguration(name, namespace string, bundle []byte, urls []string) *admissionregistrationv1.MutatingWebhookConfiguration {
	none, fail, timeout := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, int32(10)
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i, url := range urls {
		configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name:                    fmt.Sprintf("step-%d.%s.example.org", i, name),
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             &none,
			FailurePolicy:           &fail,
			TimeoutSeconds:          &timeout,
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		})
	}
	return configuration
}

// servingCertificate returns a certificate for loopback, and the CA bundle that its clients need.
func servingCertificate() (*tls.Certificate, []byte, error) {
	now := time.Now()
	authority, err := ca.New("bench", 24*time.Hour, now)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := authority.SignServing([]string{"127.0.0.1"}, 12*time.Hour, now)
	if err != nil {
		return nil, nil, err
	}
	return certificate, authority.CertificatePEM, nil
}
