package diagnose

// This file asks the API server which rights the process has, and keeps the answers: for the manifest that grants the
// missing rights, and for the objects that the process can follow.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/rights"
)

// Preflight holds the known rights of this process. The zero value knows none.
type Preflight struct {
	Grants string // the manifest that would grant the missing rights; empty if none is missing

	// ListsAll means that this process may list every webhook configuration of the cluster. No program needs that.
	ListsAll bool

	wanted        []rights.Grant
	asked, denied []diagnosis.Right
	missing       []diagnosis.Right // those of denied that are wanted
	reviews       reviewer
}

// NewPreflight asks for the wanted rights, and with them for those on the objects to follow, because a later question
// would delay the start. Without an answer, no right is known to be missing.
func NewPreflight(ctx context.Context, clients cluster.Clients, wanted []rights.Grant, follow ...client.Object) *Preflight {
	p := &Preflight{wanted: wanted, reviews: clients.AuthorizationV1()}
	for _, g := range wanted {
		p.asked = append(p.asked, g.Rights...)
	}
	needed := slices.Clone(p.asked)
	for _, o := range follow {
		p.asked = append(p.asked, rightsOn(o)...)
	}
	lists := list.Of(Config{}.bothKinds(), func(c configuration) diagnosis.Right { return c.right("list", "") })
	p.denied, _ = Check(ctx, p.reviews, slices.Concat(p.asked, lists))
	denied := func(r diagnosis.Right) bool { return slices.Contains(p.denied, r) }
	p.ListsAll = ctx.Err() == nil && !slices.ContainsFunc(lists, denied)
	p.missing = slices.DeleteFunc(slices.Clone(p.denied), func(r diagnosis.Right) bool { return !slices.Contains(needed, r) })
	return p
}

// Log logs the missing rights, with the manifest that grants them to this process, or to fallback if the identity of
// this process is unknown.
//
// Applying the manifest takes no right away: its roles are the account's own, so no other account loses a binding, and
// they hold all wanted rights of each namespace in which one is missing, so that a later manifest replaces an earlier one.
func (p *Preflight) Log(
	ctx context.Context, clients cluster.Clients, log logr.Logger, role string, fallback rbacv1.Subject,
) {
	if len(p.missing) == 0 {
		return
	}
	me := WhoAmI(ctx, clients, fallback)
	name := role + ":" + strings.NewReplacer("/", "-", "%", "-").Replace(me.Name)
	var roles []client.Object
	for _, g := range p.wanted { // the ClusterRole comes last
		if slices.ContainsFunc(p.missing, func(r diagnosis.Right) bool { return r.Namespace == g.Namespace }) {
			meta := metav1.ObjectMeta{Namespace: g.Namespace, Name: name}
			roles = append(roles, rights.Bind(meta, me, g.Rules)...)
		}
	}
	p.Grants = rights.YAML(roles)
	log.Info("rights are missing: operations that need them fail or use a fallback. The manifest grants them",
		"missing", sentence(p.missing), "manifest", p.Grants)
}

// Events reports whether this process can create Events.
func (p *Preflight) Events() bool {
	return !slices.ContainsFunc(p.missing, func(r diagnosis.Right) bool { return r.Resource == "events" })
}

// WithGrants adds the manifest of the missing rights to an error that is due to a missing right.
func (p *Preflight) WithGrants(err error) error {
	if p.Grants == "" || !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w\nGrant the missing rights with kubectl apply -f - and this manifest:\n%s",
		err, strings.TrimSpace(p.Grants))
}

// Followed returns the objects, each with a function that returns its rights: first from the answer at the start, then
// from a new request each time.
func (p *Preflight) Followed(objects ...client.Object) (all []cluster.Followed) {
	for _, o := range objects {
		rights := rightsOn(o)
		known := !slices.ContainsFunc(rights, func(r diagnosis.Right) bool { return !slices.Contains(p.asked, r) })
		all = append(all, cluster.Followed{Object: o, Access: func(ctx context.Context) (cluster.Access, error) {
			denied := p.denied
			if !known {
				var err error
				if denied, err = Check(ctx, p.reviews, rights); err != nil {
					return cluster.Access{}, err
				}
			}
			known = false
			has := func(i int) bool { return !slices.Contains(denied, rights[i]) }
			return cluster.Access{Get: has(0), Watch: has(1) && has(2)}, nil
		}})
	}
	return all
}

// rightsOn returns the rights to get, list and watch an object.
func rightsOn(o client.Object) (all []diagnosis.Right) {
	kind, _ := apiutil.GVKForObject(o, scheme.Scheme) // all objects that are followed have one
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	r := diagnosis.Right{Group: resource.Group, Resource: resource.Resource, Namespace: o.GetNamespace(), Name: o.GetName()}
	for _, r.Verb = range []string{"get", "list", "watch"} {
		all = append(all, r)
	}
	return all
}

// reviewsAtOnce bounds the number of reviews in flight.
const reviewsAtOnce = 16

// everywhere is the namespace of a review of rights that are not in a namespace. A review must name one, and no object
// can be in this one, so no Role counts.
const everywhere = "-"

// reviewer creates reviews of the caller's rights.
type reviewer = authorizationv1client.AuthorizationV1Interface

// Check returns the rights that the caller lacks, as the API server says. It asks for the rules of each namespace, and
// for a single right only where those are not all and do not show it: not every authorizer can list its rules. A right
// without an answer is not missing: the program finds out when it tries. Every user can ask unless the cluster's
// administrator has forbidden it. The error is the cause of ctx, if ctx has ended.
func Check(ctx context.Context, reviews reviewer, rights []diagnosis.Right) ([]diagnosis.Right, error) {
	known := map[string]*authorizationv1.SubjectRulesReviewStatus{}
	var listing, asking errgroup.Group
	listing.SetLimit(reviewsAtOnce)
	asking.SetLimit(reviewsAtOnce)
	for _, r := range rights {
		if known[r.Namespace] == nil {
			rules := new(authorizationv1.SubjectRulesReviewStatus)
			known[r.Namespace] = rules
			listing.Go(func() error {
				*rules = rulesIn(ctx, reviews, cmp.Or(r.Namespace, everywhere))
				return nil
			})
		}
	}
	_ = listing.Wait() // the functions return nil
	denied := map[diagnosis.Right]*bool{}
	for _, r := range rights {
		question, rules := reviewed(r), known[r.Namespace]
		if denied[question] != nil {
			continue
		}
		answer := new(!slices.ContainsFunc(rules.ResourceRules, func(rule authorizationv1.ResourceRule) bool { return grants(rule, question) }))
		denied[question] = answer
		if *answer && rules.Incomplete {
			asking.Go(func() error {
				*answer = isDenied(ctx, reviews, question)
				return nil
			})
		}
	}
	_ = asking.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("asking for rights: %w", context.Cause(ctx))
	}
	var missing []diagnosis.Right
	for _, right := range rights {
		if *denied[reviewed(right)] && !slices.Contains(missing, right) {
			missing = append(missing, right)
		}
	}
	return missing, nil
}

// reviewed returns the right in the form that an authorizer receives. It does not know the name of an object that is
// being created, and a collection has none.
func reviewed(r diagnosis.Right) diagnosis.Right {
	if r.Verb == "create" || r.Verb == "deletecollection" {
		r.Name = ""
	}
	return r
}

func sentence(rights []diagnosis.Right) string {
	return strings.Join(list.Of(rights, diagnosis.Right.String), ", ")
}

// rulesIn returns the rules for the caller in a namespace. They are incomplete without an answer, or with an error in it.
func rulesIn(ctx context.Context, reviews reviewer, namespace string) authorizationv1.SubjectRulesReviewStatus {
	review, err := reviews.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return authorizationv1.SubjectRulesReviewStatus{Incomplete: true}
	}
	review.Status.Incomplete = review.Status.Incomplete || review.Status.EvaluationError != ""
	return review.Status
}

// grants reports whether a rule grants the right, with the wildcards of RBAC.
func grants(rule authorizationv1.ResourceRule, r diagnosis.Right) bool {
	has := resources.Names[string]
	_, sub, isSub := strings.Cut(r.Resource, "/")
	return has(rule.Verbs, r.Verb) && has(rule.APIGroups, r.Group) &&
		(has(rule.Resources, r.Resource) || isSub && slices.Contains(rule.Resources, "*/"+sub)) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
}

func isDenied(ctx context.Context, reviews reviewer, r diagnosis.Right) bool {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	review, err := reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: r.Group, Resource: resource, Subresource: subresource, Verb: r.Verb,
			Namespace: r.Namespace, Name: r.Name,
		}},
	}, metav1.CreateOptions{})
	// An evaluationError in a denial comes from the authorizer. The request itself would be denied too.
	return err == nil && !review.Status.Allowed
}

// WhoAmI asks the API server for the caller's identity, and returns it as the subject of a binding. If the API server
// does not answer, it returns the fallback instead of an error.
func WhoAmI(ctx context.Context, clients cluster.Clients, fallback rbacv1.Subject) rbacv1.Subject {
	review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return fallback
	}
	return SubjectOf(review.Status.UserInfo.Username)
}

// SubjectOf returns the subject of a binding for a user name.
func SubjectOf(user string) rbacv1.Subject {
	account, _ := strings.CutPrefix(user, "system:serviceaccount:")
	if namespace, name, ok := strings.Cut(account, ":"); ok && account != user {
		return ServiceAccount(namespace, name)
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

// ServiceAccount returns the subject of a ServiceAccount.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	namespace = cmp.Or(namespace, corev1.NamespaceDefault)
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}
