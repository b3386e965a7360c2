package eirinix

// This file declares Settings, which configure the registration of a step.

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Settings configures the registration of a step. The zero value inherits from ManagerOptions and the defaults below.
// Validate reports settings that the API server would refuse, with the same reason, except for the expressions in
// Conditions.
//
// Steps of the same kind share one webhook entry if their Objects, Namespaces, Conditions, MatchPolicy, SideEffects and
// Reinvoke are equal. They cost the API server only one call, and run in the order in which they were added. While the
// program is down, such an entry refuses exactly those objects that its steps would refuse if each had its own entry.
type Settings struct {
	// Operations are the operations that the step is called for. "*" means all operations that are possible for it.
	// Only one of Operations and Rules can be set, because Rules have operations of their own.
	//
	// Empty means, for a Validation, the operations that have a callback; for an Extension, CREATE; for a Mutation,
	// CREATE and UPDATE. A Mutation of Pods or Jobs is called only for CREATE. On UPDATE the API server would refuse a
	// change to an immutable field, and with it the user's own edit.
	Operations []admissionregistrationv1.OperationType

	// Rules select the requests that are sent. Empty means the kind of T, under its resource name in the cluster, and
	// Operations.
	//
	// A wildcard among the resources selects namespaced resources only. It excludes the resources that a cluster needs
	// to start and recover. These are Leases, access reviews, tokens of ServiceAccounts and the Service of the API
	// servers. To receive them, name them.
	Rules []admissionregistrationv1.RuleWithOperations

	// Namespaces selects objects by the labels of their namespace. Empty means ManagerOptions.Namespace, else all
	// namespaces except the cluster's own.
	//
	// It does not apply to cluster-scoped objects, other than Namespaces, which are selected by their own labels. A
	// step for Namespaces does not inherit ManagerOptions.Namespace. It sees the cluster's own namespaces and the
	// webhook's only if this selects them by the label kubernetes.io/metadata.name.
	Namespaces *metav1.LabelSelector

	// Objects selects objects by the labels of their old or new version.
	Objects *metav1.LabelSelector

	// Conditions are CEL expressions that must all be true. The API server compiles and evaluates them. If one does not
	// compile, Start and RegisterExtensions fail with the API server's message. A Harness and a preview refuse it too.
	Conditions []admissionregistrationv1.MatchCondition

	// FailurePolicy decides about the object if the step fails. Empty means ManagerOptions.FailurePolicy.
	FailurePolicy admissionregistrationv1.FailurePolicyType

	// MatchPolicy decides whether a rule also selects requests for the same object in another API version. Empty means
	// Equivalent.
	MatchPolicy admissionregistrationv1.MatchPolicyType

	// Timeout is the time limit of the step, in whole seconds from 1 to 30. The timeout of a shared call is the sum of
	// its steps' timeouts. Steps whose sum exceeds 30 s do not share a call. Zero means the time that the other steps
	// of the call leave. For all of its steps without a Timeout together, a call's timeout has 5 s more.
	Timeout time.Duration

	// Reinvoke decides whether the step sees an object again after a later step or webhook has changed it. Empty means
	// Never.
	Reinvoke admissionregistrationv1.ReinvocationPolicyType

	// SideEffects must be None (the default), or NoneOnDryRun if the step has side effects, but none in a dry run.
	SideEffects admissionregistrationv1.SideEffectClass

	// Isolated gives the step its own webhook entry, even if it could share one.
	Isolated bool

	// ClusterCritical acknowledges that the step can stop the cluster. It allows kube-system, the webhook's own
	// namespace, and */* with failurePolicy Fail.
	//
	// A mutating step then also sees the objects that it otherwise skips. These are the mirror pods of static pods, and
	// all objects except pods that a controller owns, such as the ReplicaSet of a Deployment. Changes to those conflict
	// with the controller or kubelet that maintains them.
	ClusterCritical bool
}

// Configured is implemented by an Extension that has Settings. An Extension without Settings is registered for the
// CREATE of pods.
type Configured interface{ Settings() Settings }
