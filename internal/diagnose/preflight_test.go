package diagnose_test

// Which rights are missing, and the manifest that grants them.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

func secret(verb string) diagnosis.Right {
	return diagnosis.Right{Resource: "secrets", Verb: verb, Namespace: "cf", Name: "eirini-x-setupcertificate"}
}

var _ = Describe("A pre-flight", func() {
	It("finds the rights that are missing, and no more, by the rules and the questions of an API server", Label("api-server"), func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		name := "user-" + namespace
		clients := clientsFor(Must(controlPlane.User(name)))
		needed := []diagnosis.Right{
			{Resource: "secrets", Verb: "get", Namespace: namespace, Name: "certificate"},
			{Resource: "secrets", Verb: "create", Namespace: namespace, Name: "certificate"},
			{Resource: "pods/eviction", Verb: "create", Namespace: namespace},
			{Group: "admissionregistration.k8s.io", Resource: webhookconf.Mutating.Resource, Verb: "update", Name: namespace + "-mutating-hook"},
		}
		missing := func(ctx context.Context) []diagnosis.Right {
			GinkgoHelper()
			return Must(diagnose.Check(ctx, clients.AuthorizationV1(), needed))
		}
		Expect(missing(ctx)).To(Equal(needed))
		Expect(diagnose.WhoAmI(ctx, clients, diagnose.ServiceAccount("", "unknown"))).To(Equal(rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}))
		grant(ctx, name, needed[:2]...)
		Eventually(missing).WithContext(ctx).WithTimeout(patience).Should(Equal(needed[2:]))
		needed[0].Name = "another" // a right on one object is not a right on another
		Expect(missing(ctx)).To(Equal([]diagnosis.Right{needed[0], needed[2], needed[3]}))
		grant(ctx, name, needed[3])
		Eventually(missing).WithContext(ctx).WithTimeout(patience).Should(Equal([]diagnosis.Right{needed[0], needed[2]}))

		ended, cancel := context.WithCancelCause(ctx)
		cancel(errors.New("enough"))
		_, err := diagnose.Check(ended, clients.AuthorizationV1(), needed)
		Expect(err).To(MatchError("asking for rights: enough"))
	}, SpecTimeout(2*patience))

	DescribeTable("binds the caller under the name that the API server knows",
		func(user string, expected rbacv1.Subject) { Expect(diagnose.SubjectOf(user)).To(Equal(expected)) },
		Entry("a ServiceAccount", "system:serviceaccount:cf:logger", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "cf", Name: "logger"}),
		Entry("a user whose name only looks like it", "system:serviceaccount:cf", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "system:serviceaccount:cf"}),
	)

	Describe("where the API server does not answer", func() {
		var clients *fake.Clientset
		BeforeEach(func() { clients = withoutRules() })
		refuse := func(resource string, when func(clienttesting.Action) bool) {
			clients.PrependReactor("create", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
				if !when(a) {
					return true, &authorizationv1.SelfSubjectAccessReview{}, nil // which denies
				}
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "authorization.k8s.io", Resource: resource}, "", nil)
			})
		}

		It("does not take an unknown right for a missing one", func(ctx SpecContext) {
			refuse("selfsubjectaccessreviews", func(a clienttesting.Action) bool {
				review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
				return review.Spec.ResourceAttributes.Verb == "get"
			})
			Expect(diagnose.Check(ctx, clients.AuthorizationV1(), []diagnosis.Right{secret("get"), secret("update"), secret("update")})).
				To(Equal([]diagnosis.Right{secret("update")}))
		})

		It("takes the fallback for the subject", func(ctx SpecContext) {
			refuse("selfsubjectreviews", func(clienttesting.Action) bool { return true })
			fallback := diagnose.ServiceAccount("cf", "logger")
			Expect(diagnose.WhoAmI(ctx, clients, fallback)).To(Equal(fallback))
		})

		It("asks a few at a time", func(ctx SpecContext) {
			reviews := &slowReviews{release: make(chan struct{})}
			var many []diagnosis.Right
			for i := range 40 {
				many = append(many, secret(fmt.Sprint("verb", i)))
			}
			done := make(chan []diagnosis.Right, 1)
			go func() {
				defer GinkgoRecover()
				done <- Must(diagnose.Check(ctx, reviews, many))
			}()
			Eventually(reviews.asked.Load).WithTimeout(patience).Should(BeEquivalentTo(16))
			Consistently(reviews.asked.Load).WithTimeout(50 * time.Millisecond).ShouldNot(BeNumerically(">", 16))
			close(reviews.release)
			Eventually(done).WithTimeout(patience).Should(Receive(BeEmpty()))
			Expect(reviews.asked.Load()).To(BeEquivalentTo(len(many)))
		})

		It("asks for each right once", func(ctx SpecContext) {
			reviews := &slowReviews{release: make(chan struct{})}
			close(reviews.release)
			named := diagnosis.Right{Resource: "secrets", Verb: "create", Namespace: "cf", Name: "one"}
			unnamed := named
			unnamed.Name = ""
			Expect(diagnose.Check(ctx, reviews, []diagnosis.Right{named, secret("get"), secret("get"), unnamed, named})).To(BeEmpty())
			Expect(reviews.asked.Load()).To(BeEquivalentTo(2), "RBAC cannot restrict creation to a name")
		})
	})
})

var _ = DescribeTable("The rights on an object that a process follows",
	func(ctx SpecContext, asked []string, denied, unknown string, expected cluster.Access, requests int) {
		clients := withoutRules()
		var sent atomic.Int32
		clients.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
			sent.Add(1)
			verb := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).Spec.ResourceAttributes.Verb
			if verb == unknown {
				return true, nil, apierrors.NewServiceUnavailable("not now")
			}
			return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: verb != denied}}, nil
		})
		var wanted []diagnosis.Right
		for _, verb := range asked {
			wanted = append(wanted, secret(verb))
		}
		preflight := diagnose.NewPreflight(ctx, clients, diagnose.Granting(wanted...))
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret("").Namespace, Name: secret("").Name}}
		access := preflight.Followed(object)[0].Access
		sent.Store(0)
		Expect(access(ctx)).To(Equal(expected))
		Expect(sent.Load()).To(BeEquivalentTo(requests), "from the answer at the start, if that has all of them")
		Expect(access(ctx)).To(Equal(expected))
		Expect(sent.Load()).To(BeEquivalentTo(requests+3), "a later call asks again")
	},
	Entry("are all granted", []string{"get", "list", "watch"}, "", "", cluster.Access{Get: true, Watch: true}, 0),
	Entry("lack get", []string{"get", "list", "watch"}, "get", "", cluster.Access{Watch: true}, 0),
	Entry("lack watch", []string{"get", "list", "watch"}, "watch", "", cluster.Access{Get: true}, 0),
	Entry("are unknown, which an attempt shows", []string{"get", "list", "watch"}, "", "watch", cluster.Access{Get: true, Watch: true}, 0),
	Entry("were not asked for at the start", []string{"get", "update"}, "watch", "", cluster.Access{Get: true}, 3),
)

var _ = It("A pre-flight asks for the rights on followed objects together with the wanted rights", func(ctx SpecContext) {
	clients := withoutRules()
	var sent atomic.Int32
	clients.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		sent.Add(1)
		verb := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).Spec.ResourceAttributes.Verb
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: verb == "list"}}, nil
	})
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret("").Namespace, Name: secret("").Name}}
	preflight := diagnose.NewPreflight(ctx, clients, diagnose.Granting(secret("get")), object)
	Expect(sent.Swap(0)).To(BeEquivalentTo(5), "with those to list every configuration")
	Expect(preflight.Followed(object)[0].Access(ctx)).To(BeZero())
	Expect(sent.Load()).To(BeZero(), "no further question")
	preflight.Log(ctx, clients, GinkgoLogr, "role", diagnose.ServiceAccount("cf", "program"))
	Expect(preflight.Grants).To(And(ContainSubstring("- get"), Not(ContainSubstring("- watch"))), "a right that is not wanted is not missing")
})

var _ = It("The manifest of a pre-flight takes nothing away where it is applied over another one", func(ctx SpecContext) {
	clients := fake.NewClientset()
	clients.PrependReactor("create", "selfsubjectrulesreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectRulesReview)
		if review.Spec.Namespace == secret("").Namespace {
			review.Status.ResourceRules = []authorizationv1.ResourceRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"*"}}}
		}
		return true, review, nil
	})
	clients.PrependReactor("create", "selfsubjectreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.SelfSubjectReview)
		review.Status.UserInfo.Username = "oidc:https://issuer/jane%40"
		return true, review, nil
	})
	preflight := diagnose.NewPreflight(ctx, clients, diagnose.Granting(secret("get"), secret("update"), diagnosis.Right{Resource: "pods", Verb: "list", Namespace: "other"}))
	preflight.Log(ctx, clients, GinkgoLogr, "eirinix:mine", diagnose.ServiceAccount("cf", "program"))
	Expect(preflight.Grants).To(And(ContainSubstring("- update"), ContainSubstring("- get"), ContainSubstring("name: eirinix:mine:oidc:https:--issuer-jane-40\n")),
		"its role holds what is granted too, and is not that of another account")
	Expect(preflight.Grants).To(ContainSubstring("namespace: other"))
})

// listedRule is a rule of a review.
func listedRule(verbs, groups, resources string, names ...string) authorizationv1.ResourceRule {
	split := func(text string) []string { return strings.Split(text, ",") }
	return authorizationv1.ResourceRule{Verbs: split(verbs), APIGroups: split(groups), Resources: split(resources), ResourceNames: names}
}

var _ = DescribeTable("A right is granted by a rule",
	func(r diagnosis.Right, rule authorizationv1.ResourceRule, expected bool) {
		Expect(diagnose.Grants(rule, r)).To(Equal(expected))
	},
	Entry("with its name", secret("get"), listedRule("get,list", "", "secrets", "a", secret("").Name), true),
	Entry("but not with another name", secret("get"), listedRule("get", "", "secrets", "a"), false),
	Entry("but not for all objects by one with names", diagnosis.Right{Resource: "secrets", Verb: "list"}, listedRule("list", "", "secrets", "a"), false),
	Entry("with wildcards", secret("get"), listedRule("*", "*", "*"), true),
	Entry("but not with another verb", secret("get"), listedRule("list", "*", "*"), false),
	Entry("on that subresource of all resources", diagnosis.Right{Resource: "pods/eviction", Verb: "create"}, listedRule("create", "", "*/eviction"), true),
	Entry("on everything, with subresources", diagnosis.Right{Resource: "pods/eviction", Verb: "create"}, listedRule("create", "", "*"), true),
	Entry("but not by one on the resource", diagnosis.Right{Resource: "pods/eviction", Verb: "create"}, listedRule("create", "", "pods"), false),
	Entry("nor on the resource by one on a subresource", diagnosis.Right{Resource: "pods", Verb: "create"}, listedRule("create", "", "*/eviction"), false),
)

// withoutRules returns clients of an API server whose authorizer cannot list rules, as a webhook.
func withoutRules() *fake.Clientset {
	clients := fake.NewClientset()
	clients.PrependReactor("create", "selfsubjectrulesreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectRulesReview{Status: authorizationv1.SubjectRulesReviewStatus{Incomplete: true}}, nil
	})
	return clients
}

// slowReviews allows everything, once it is released. It lists no rules.
type slowReviews struct {
	authorizationv1client.AuthorizationV1Interface
	authorizationv1client.SelfSubjectAccessReviewInterface
	asked   atomic.Int32
	release chan struct{}
}

func (s *slowReviews) SelfSubjectRulesReviews() authorizationv1client.SelfSubjectRulesReviewInterface {
	return withoutRules().AuthorizationV1().SelfSubjectRulesReviews()
}

func (s *slowReviews) SelfSubjectAccessReviews() authorizationv1client.SelfSubjectAccessReviewInterface {
	return s
}

func (s *slowReviews) Create(context.Context, *authorizationv1.SelfSubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	s.asked.Add(1)
	<-s.release
	return &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
}
