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

// alone returns the settings of a step with its own webhook and path, like an endpoint of agnhost. Real programs should
// omit that, because steps that share a webhook cost only one call.
func alone(rules ...admissionregistrationv1.RuleWithOperations) eirinix.Settings {
	return eirinix.Settings{Isolated: true, Rules: rules}
}

// where is alone for objects with a label that names the endpoint. It is for endpoints that treat every object alike.
func where(endpoint string, rules ...admissionregistrationv1.RuleWithOperations) eirinix.Settings {
	s := alone(rules...)
	s.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"agnhost": endpoint}}
	return s
}

func on(group, version, resource string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}
}
