package page

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/plan"
)

// Bounds of an uploaded configuration, once it is unpacked.
const (
	maxFiles    = 2000
	maxUnpacked = 32 << 20
	planSamples = 2
	mainFile    = "weir.yaml"
	// customersFolder is where customers' files are put that are not in a zip,
	// unless the form names another one.
	customersFolder = "customers"
)

type planBody struct {
	Form    string
	Acts    bool
	Faults  []config.Fault
	Effect  *plan.Effect
	Folder  string // default of the form
	Send    int64
	Back    int64 // retractions
	LastJob *jobBody
}

func (b planBody) withForm(form string) any { b.Form, b.Acts = form, true; return b }

// badRequest returns the error of a request that cannot be done, whose sentence is shown.
func badRequest(format string, args ...any) error {
	return &operate.InvalidRequestError{Reason: fmt.Sprintf(format, args...)}
}

func (p *Page) planForm(w http.ResponseWriter, _ *http.Request, who *session) {
	b := planBody{Folder: customersFolder, LastJob: p.lastJob(jobPlan), Acts: who != nil, Form: who.Form()}
	p.show(w, http.StatusOK, "plan", view{Title: "Plan a configuration", Section: "/plan", Who: who, Body: b})
}

// plan begins to compute what an uploaded configuration would do. It is unpacked
// into a folder of its own, read without variables and files of this machine, and
// removed again. One plan is computed at a time: it reads the whole state.
func (p *Page) plan(w http.ResponseWriter, r *http.Request, who *session) {
	folder, err := os.MkdirTemp("", "weir-plan-")
	if err != nil {
		p.renderError(w, r, err)
		return
	}
	candidate, err := load(folder, r)
	if e := os.RemoveAll(folder); err == nil {
		err = e
	}
	b := planBody{Form: who.form, Acts: true, Folder: customersFolder}
	var faults *config.Faults
	var no *operate.InvalidRequestError
	switch {
	case errors.As(err, &faults):
		for _, f := range faults.List {
			f.File = strings.TrimPrefix(strings.TrimPrefix(f.File, folder), string(filepath.Separator))
			f.Problem = strings.ReplaceAll(f.Problem, folder, "")
			b.Faults = append(b.Faults, f)
		}
		p.show(w, http.StatusUnprocessableEntity, "plan", view{Title: jobKinds[jobPlan], Section: "/plan", Who: who, Body: b})
		return
	case errors.As(err, &no):
		p.renderMessage(w, r, http.StatusUnprocessableEntity, no.Reason)
		return
	case err != nil:
		p.renderError(w, r, err)
		return
	}
	j := p.start(w, r, who, jobPlan, "A plan of an uploaded configuration", func(ctx context.Context, j *job) (outcome, error) {
		b := planBody{Folder: customersFolder}
		var err error
		b.Effect, err = plan.Compute(ctx, plan.Input{
			Candidate: candidate, Against: p.opt.Config(), Store: p.opt.Store, Samples: planSamples, Progress: j.progress,
		})
		if errors.Is(err, plan.ErrNothingRan) {
			err = badRequest("%s", err)
		}
		if err != nil {
			return outcome{}, err
		}
		for _, s := range b.Effect.Services {
			b.Send, b.Back = b.Send+s.Send, b.Back+s.Retract
		}
		return outcome{"plan", view{Title: jobKinds[jobPlan], Section: "/plan", Body: b}}, nil
	})
	if j != nil {
		p.follow(w, r, who, j)
	}
}

// load puts what was uploaded into a folder and reads it.
func load(folder string, r *http.Request) (*config.Config, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	uploads := r.MultipartForm
	if uploads == nil || len(uploads.File["main"]) != 1 {
		return nil, badRequest("Choose one main file, or one zip file.")
	}
	sent := uploads.File["main"][0]
	text, err := read(sent)
	if err != nil {
		return nil, err
	}
	u := unpacking{root: root}
	main := mainFile
	if strings.EqualFold(path.Ext(sent.Filename), ".zip") {
		if main, err = u.zip(text); err != nil {
			return nil, err
		}
	} else {
		if err := u.put(mainFile, text); err != nil {
			return nil, err
		}
		into := strings.TrimSpace(r.PostForm.Get("folder"))
		for _, file := range uploads.File["customers"] {
			if text, err = read(file); err != nil {
				return nil, err
			}
			// A browser gives names without folders; what does not is not believed.
			if err := u.put(path.Join(into, path.Base(file.Filename)), text); err != nil {
				return nil, err
			}
		}
	}
	none := func(string) (string, bool) { return "", false }
	c, err := assemble.Load(filepath.Join(folder, filepath.FromSlash(main)), none, config.AllowUnsetEnv(), config.Confined())
	if err != nil {
		return nil, err
	}
	return c, assemble.Check(c)
}

func read(h *multipart.FileHeader) ([]byte, error) {
	f, err := h.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f) // the request is bounded
}

// unpacking writes files below a folder and counts what it writes.
type unpacking struct {
	root  *os.Root
	files int
	bytes int
	names []string
}

func (u *unpacking) put(name string, text []byte) error {
	u.files, u.bytes = u.files+1, u.bytes+len(text)
	switch {
	case u.files > maxFiles || u.bytes > maxUnpacked:
		return badRequest("A configuration here has at most %d files and %d MiB.", maxFiles, maxUnpacked>>20)
	case !filepath.IsLocal(name) || name == ".":
		return badRequest("The name %q leads out of the configuration's folder.", name)
	}
	local := filepath.FromSlash(name)
	err := u.root.MkdirAll(filepath.Dir(local), 0o700)
	if err == nil {
		// A name that is there already is refused: which of both was meant?
		var f *os.File
		if f, err = u.root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_, err = f.Write(text)
			err = errors.Join(err, f.Close())
		}
	}
	if errors.Is(err, os.ErrExist) {
		return badRequest("The name %q is there twice.", name)
	}
	u.names = append(u.names, name)
	return err
}

// zip unpacks the YAML files of an archive and returns the main file's name: the
// weir.yaml that is nearest to the top.
func (u *unpacking) zip(archive []byte) (main string, err error) {
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return "", badRequest("This is no zip file.")
	}
	for _, f := range z.File {
		extension := strings.ToLower(path.Ext(f.Name))
		if !f.Mode().IsRegular() || extension != ".yaml" && extension != ".yml" {
			continue
		}
		text, err := u.inflate(f)
		if err != nil {
			return "", err
		}
		if err := u.put(f.Name, text); err != nil {
			return "", err
		}
	}
	var found []string
	for _, name := range u.names {
		if path.Base(name) == mainFile {
			found = append(found, name)
		}
	}
	depth := func(name string) int { return strings.Count(path.Clean(name), "/") }
	slices.SortFunc(found, func(a, b string) int { return depth(a) - depth(b) })
	switch {
	case len(found) == 0:
		return "", badRequest("There is no %s in the zip file.", mainFile)
	case len(found) > 1 && depth(found[0]) == depth(found[1]):
		return "", badRequest("There are several %s in the zip file: %s, %s.", mainFile, found[0], found[1])
	}
	return found[0], nil
}

// inflate reads a file of an archive, whose stated size is not believed.
func (u *unpacking) inflate(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, badRequest("The zip file cannot be read: %q.", f.Name)
	}
	defer r.Close()
	left := maxUnpacked - u.bytes
	text, err := io.ReadAll(io.LimitReader(r, int64(left)+1))
	if err != nil {
		return nil, badRequest("The zip file cannot be read: %q.", f.Name)
	}
	return text, nil // too much is found when it is put
}
