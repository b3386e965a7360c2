package main

// This file holds the settings that the endpoints share.

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

const (
	created = admissionregistrationv1.Create
	updated = admissionregistrationv1.Update
	deleted = admissionregistrationv1.Delete
)

// endpoints makes the steps of the endpoints.
type endpoints struct {
	sidecarImage string // of the container that mutating-pods-sidecar adds

	// othersRegister means that the webhook configurations are not this program's. Then the endpoints do not choose the
	// requests that they answer, and each call of a mutating endpoint is one stage of several.
	othersRegister bool
}

// steps returns the steps of all endpoints.
func (e endpoints) steps() []any { return append(e.validating(), e.mutating()...) }

// alone returns the settings of a step with its own webhook and path, like an endpoint of agnhost. Real programs should
// omit that, because steps that share a webhook cost only one call.
//
// The rules are those of endpoints that take any kind of object. Where others register, that is any kind of theirs.
func (e endpoints) alone(rules ...admissionregistrationv1.RuleWithOperations) eirinix.Settings {
	s := eirinix.Settings{Isolated: true, Rules: rules, AllowClusterCritical: e.othersRegister}
	if e.othersRegister {
		for i := range s.Rules {
			s.Rules[i].Rule = admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}}
		}
	}
	return s
}

// where is alone for objects with a label that names the endpoint. It is for endpoints that treat every object alike.
func (e endpoints) where(endpoint string, rules ...admissionregistrationv1.RuleWithOperations) eirinix.Settings {
	s := e.alone(rules...)
	if !e.othersRegister {
		s.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"agnhost": endpoint}}
	}
	return s
}

func on(group, version, resource string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}
}
