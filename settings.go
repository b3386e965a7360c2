package eirinix

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Settings says how a step is registered. The zero value inherits from ManagerOptions and the defaults below.
// What the API server would refuse is refused by Validate, with the same reason, but for expressions in Conditions.
//
// Steps whose Objects, Namespaces, Conditions, MatchPolicy, SideEffects and Reinvoke are equal, on the same kind, share
// one webhook entry and so cost the API server one call; they run in the order in which they were added. While the
// program is down, such an entry refuses what its steps would have refused alone, and nothing else.
type Settings struct {
	// Operations are those that the step is called for; "*" stands for all that it can be. Empty: a Validation's that
	// have a callback; CREATE and UPDATE for a Mutation, but CREATE alone of Pods and Jobs, where a change to what an
	// older object holds would have the API server refuse the user's own edit; CREATE for an Extension. Rules have
	// operations of their own, so either is set.
	Operations []admissionregistrationv1.OperationType

	// Rules selects what is sent. Empty: the kind of T, as the cluster calls it, and Operations.
	// A wildcard among the resources means what lies in a namespace, and leaves out what a cluster starts and heals by
	// (Leases, access reviews, tokens of ServiceAccounts, the Service of the API servers); name those to get them.
	Rules []admissionregistrationv1.RuleWithOperations

	// Namespaces selects by the labels of the namespace. Empty: ManagerOptions.Namespace, else all but the
	// cluster's own. Cluster-scoped objects are not selected by it, but for Namespaces: these are selected by their own
	// labels. A step about them does not inherit ManagerOptions.Namespace, and sees the cluster's own and the webhook's
	// only where this selects them by the label kubernetes.io/metadata.name.
	Namespaces *metav1.LabelSelector

	// Objects selects by the labels of the object, old or new.
	Objects *metav1.LabelSelector

	// Conditions are CEL expressions that must all be true. The API server compiles and evaluates them: one that does not
	// compile ends Start and RegisterExtensions with its message. A Harness and a preview refuse it too.
	Conditions []admissionregistrationv1.MatchCondition

	// FailurePolicy says what becomes of the object when the step fails. Empty: ManagerOptions.FailurePolicy.
	FailurePolicy admissionregistrationv1.FailurePolicyType

	// MatchPolicy says whether a rule also selects the same object by another version. Empty: Equivalent.
	MatchPolicy admissionregistrationv1.MatchPolicyType

	// Timeout is the time that the step has. Whole seconds, 1 to 30. Steps that share a call have the sum of their
	// timeouts; beyond 30 s they share no call. Zero: what others leave of the call, which has 5 s more for all such steps.
	Timeout time.Duration

	// Reinvoke says whether the step sees an object again that a later step or webhook has changed.
	// Empty: Never.
	Reinvoke admissionregistrationv1.ReinvocationPolicyType

	// SideEffects must be None (the default), or NoneOnDryRun where the step changes something else unless
	// the request is a dry run.
	SideEffects admissionregistrationv1.SideEffectClass

	// Isolated gives the step a webhook entry of its own, whatever it has in common with others.
	Isolated bool

	// ClusterCritical says: I know that this may stop the cluster. It allows kube-system, the webhook's own
	// namespace, and */* with failurePolicy Fail. It also has a step that changes objects see what others are
	// left out of: objects that a controller owns, pods aside (a ReplicaSet of a Deployment), and the mirror
	// pods of static pods. Whoever changes those fights with what made them.
	ClusterCritical bool
}

// Configured is an Extension that has Settings. Without them it is registered for the CREATE of pods.
type Configured interface{ Settings() Settings }
