package record

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// Placeholder stands where something has been taken out, spelt as that was; in the data of Secrets, in base64.
const Placeholder = "redacted"

var (
	inBase64 = base64.StdEncoding.EncodeToString([]byte(Placeholder))
	inHex    = hex.EncodeToString([]byte(Placeholder)) // which has digits alone
	inText   = `"` + Placeholder + `"`
	inData   = `"` + inBase64 + `"`
)

// A rule says what is taken out of a value, and of what stands below it. The same rules are for objects and for the
// paths and values of patches.
type rule struct {
	by     string            // what replaces the value, unless it is null; empty: the value stays
	into   byte              // the bracket of an object or array whose members are replaced instead
	quiet  bool              // not worth a note, because what stands above it is
	drops  func(string) bool // the members that are removed
	names  []string          // of the members that have rules of their own, in whatever case
	below  []*rule           // those rules
	others *rule             // for all other members and for elements; nil: they stay
	only   func(string) bool // to which of the others that applies; nil: to all
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

// members replaces those of an object, or of an array, by its bracket; what else stands there it replaces whole.
func members(bracket byte, by string) *rule {
	each := replaced(by)
	each.quiet = true
	return &rule{by: by, into: bracket, others: each}
}

// inRequest is a rule for members of the request in a review.
func inRequest(names []string, r *rule) *rule {
	request := &rule{names: names}
	for range names {
		request.below = append(request.below, r)
	}
	return &rule{names: []string{"request"}, below: []*rule{request}}
}

// bareRule is for a review that is to get a response, and our own words.
var bareRule = &rule{drops: func(name string) bool {
	return strings.EqualFold(name, "response") || strings.EqualFold(name, ownMember)
}}

// userRule is for who asks.
var userRule = inRequest([]string{"userInfo"}, withExtra)

// withExtra is for an object with the extra that authentication adds to a user.
var withExtra = &rule{names: []string{"extra"}, below: []*rule{{others: members('[', inText), only: looksSecret}}}

// extrasRule is for the kinds that tell of a user, at whatever depth: those of authorization, TokenReviews, and
// CertificateSigningRequests.
var extrasRule = func() *rule {
	r := &rule{}
	user := &rule{names: []string{"user", "userInfo"}, below: []*rule{withExtra, withExtra}, others: r}
	spec := &rule{names: withExtra.names, below: withExtra.below, others: r}
	r.names, r.below, r.others = []string{"spec", "status"}, []*rule{spec, user}, r
	return r
}()

// secretRule is for a Secret, and for what may hold some, at whatever depth: a SecretList, or the object for which a
// patch is meant.
var secretRule = func() *rule {
	r := &rule{names: []string{"data", "stringData", "metadata"}, below: []*rule{members('{', inData), members('{', inText), {}}}
	r.others = r
	return r
}()

// tokenRule is for TokenReviews and TokenRequests, likewise. A TokenReview tells of a user, too.
var tokenRule = func() *rule {
	r := &rule{}
	token := &rule{names: []string{"token", "user"}, below: []*rule{replaced(inText), withExtra}, others: r}
	r.names, r.below, r.others = []string{"spec", "status"}, []*rule{token, token}, r
	return r
}()

// ruleForKind is the rule for objects that say they are of a kind. Groups and versions are not looked at: a kind of
// that name of another group holds secrets, too.
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

// ruleForResource likewise. The resource of TokenRequests is serviceaccounts, with a subresource.
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

// looksSecret tells whether what authentication has added to a user (userInfo.extra) is a credential, by its name.
func looksSecret(extra string) bool {
	extra = strings.ToLower(extra)
	if strings.HasSuffix(extra, "/credential-id") {
		return false // which names a token, and is no token
	}
	for _, part := range []string{"token", "password", "passwd", "secret", "bearer", "apikey", "api-key", "private-key", "privatekey"} {
		if strings.Contains(extra, part) {
			return true
		}
	}
	return false
}
