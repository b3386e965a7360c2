package record

// This file holds the rules for redaction.

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// Placeholder replaces a redacted value, in the encoding of that value. In the data of Secrets, that is base64.
const Placeholder = "redacted"

var (
	inBase64 = base64.StdEncoding.EncodeToString([]byte(Placeholder))
	inHex    = hex.EncodeToString([]byte(Placeholder)) // it has no letters
	inText   = `"` + Placeholder + `"`
	inData   = `"` + inBase64 + `"`
)

// A rule describes how a value is redacted, with everything below it. The same rules are for objects and for the
// paths and values of patches.
type rule struct {
	by     string            // replacement of the value, unless it is null; empty: the value stays
	into   byte              // the bracket of an object or array whose members are replaced instead
	quiet  bool              // not noted, because its parent is
	drops  func(string) bool // reports which members are removed
	names  []string          // members that have rules of their own; case is ignored
	below  []*rule           // those rules
	others *rule             // for all other members and for elements; nil: they stay
	only   func(string) bool // reports to which of the others that applies; nil: to all
}

func (r *rule) of(name string) *rule {
	for i, n := range r.names {
		if strings.EqualFold(n, name) {
			return r.below[i]
		}
	}
	if r.only != nil && !r.only(name) {
		return nil
	}
	return r.others
}

func replaced(by string) *rule {
	r := &rule{by: by}
	r.others = r
	return r
}

// members returns a rule that replaces the members of an object, or of an array, depending on the bracket. It
// replaces any other value as a whole.
func members(bracket byte, by string) *rule {
	each := replaced(by)
	each.quiet = true
	return &rule{by: by, into: bracket, others: each}
}

// inRequest returns a rule for members of the request in a review.
func inRequest(names []string, r *rule) *rule {
	request := &rule{names: names}
	for range names {
		request.below = append(request.below, r)
	}
	return &rule{names: []string{"request"}, below: []*rule{request}}
}

// bareRule is for a review that gets a response and our own member: it removes both.
var bareRule = &rule{drops: func(name string) bool {
	return strings.EqualFold(name, "response") || strings.EqualFold(name, ownMember)
}}

// userRule is for the user who sends the request.
var userRule = inRequest([]string{"userInfo"}, withExtra)

// withExtra is for an object with the extra that authentication adds to a user.
var withExtra = &rule{names: []string{"extra"}, below: []*rule{{others: members('[', inText), only: looksSecret}}}

// extrasRule is for kinds that describe a user, at any depth: SubjectAccessReviews, LocalSubjectAccessReviews,
// SelfSubjectReviews and CertificateSigningRequests. TokenReviews have tokenRule.
var extrasRule = func() *rule {
	r := &rule{}
	user := &rule{names: []string{"user", "userInfo"}, below: []*rule{withExtra, withExtra}, others: r}
	spec := &rule{names: withExtra.names, below: withExtra.below, others: r}
	r.names, r.below, r.others = []string{"spec", "status"}, []*rule{spec, user}, r
	return r
}()

// secretRule is for a Secret, and for objects that can hold Secrets, at any depth: a SecretList, or the object to
// which a patch applies.
var secretRule = func() *rule {
	r := &rule{names: []string{"data", "stringData", "metadata"}, below: []*rule{members('{', inData), members('{', inText), {}}}
	r.others = r
	return r
}()

// tokenRule is for TokenReviews and TokenRequests, at any depth. A TokenReview also describes a user.
var tokenRule = func() *rule {
	r := &rule{}
	token := &rule{names: []string{"token", "user"}, below: []*rule{replaced(inText), withExtra}, others: r}
	r.names, r.below, r.others = []string{"spec", "status"}, []*rule{token, token}, r
	return r
}()

// ruleForKind returns the rule for objects of a kind; nil if there is none. It ignores group and version, because a
// kind of that name in another group holds secrets, too.
func (t text) ruleForKind(kind span) *rule {
	switch {
	case t.is(kind, "Secret", "SecretList"):
		return secretRule
	case t.is(kind, "TokenReview", "TokenRequest"):
		return tokenRule
	case t.is(kind, "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectReview", "CertificateSigningRequest", "CertificateSigningRequestList"):
		return extrasRule
	}
	return nil
}

// ruleForResource is ruleForKind for a resource. The resource of TokenRequests is serviceaccounts, with a
// subresource.
func (t text) ruleForResource(resource span) *rule {
	switch {
	case t.is(resource, "secrets"):
		return secretRule
	case t.is(resource, "tokenreviews"):
		return tokenRule
	case t.is(resource, "subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectreviews", "certificatesigningrequests"):
		return extrasRule
	}
	return nil
}

// looksSecret reports whether an extra that authentication has added to a user (userInfo.extra) is a credential,
// judging by its name.
func looksSecret(extra string) bool {
	extra = strings.ToLower(extra)
	if strings.HasSuffix(extra, "/credential-id") {
		return false // this names a token, and is no token
	}
	for _, part := range []string{"token", "password", "passwd", "secret", "bearer", "apikey", "api-key", "private-key", "privatekey"} {
		if strings.Contains(extra, part) {
			return true
		}
	}
	return false
}
