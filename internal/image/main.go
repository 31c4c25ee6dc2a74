// Command image makes an OCI image of a static binary, without a daemon and from an empty
// base: the binary, one user that is not root, a folder for its state and one for
// temporary files. The same binaries make the same image, byte for byte.
//
//	image -out DIR -version 0.1.0 linux/amd64=BINARY linux/arm64=BINARY
//
// DIR becomes an OCI image layout with an index over all platforms, which crane, skopeo
// and podman read: crane push DIR REGISTRY/weir:0.1.0
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the id of the user and of its group, as distroless images have it.
const user = 65532

func main() {
	out := flag.String("out", "", "folder of the image layout; it must not be there yet")
	version := flag.String("version", "devel", "version, for the labels")
	flag.Parse()
	if err := write(*out, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write makes the layout.
func write(out, version string, binaries []string) error {
	if out == "" || len(binaries) == 0 {
		return fmt.Errorf("-out and at least one linux/ARCH=BINARY are needed")
	}
	if _, err := os.Stat(out); err == nil {
		return fmt.Errorf("%s is there already", out)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		name, file, _ := strings.Cut(b, "=")
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		binary, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		image, err := imageOf(binary, version, *platform)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	_, err := layout.Write(out, index)
	return err
}

// imageOf makes the image of one platform.
func imageOf(binary []byte, version string, platform v1.Platform) (v1.Image, error) {
	text, err := files(binary)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Variant = platform.Architecture, platform.OS, platform.Variant
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), WorkingDir: "/var/lib/weir",
		Entrypoint: []string{"/weir"}, Cmd: []string{"run", "-c", "/etc/weir/weir.yaml"},
		Env:          []string{"PATH=/", "HOME=/var/lib/weir"},
		ExposedPorts: map[string]struct{}{"9600/tcp": {}, "9601/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "weir",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.source":   "https://github.com/seed-86dfc502/weir",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// files returns the only layer.
func files(binary []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name, text string
		mode       int64
		owner      int
	}{
		{"etc/", "", 0o755, 0},
		{"etc/group", fmt.Sprintf("root:x:0:\nweir:x:%d:\n", user), 0o644, 0},
		{"etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/none\nweir:x:%d:%d:weir:/var/lib/weir:/none\n", user, user), 0o644, 0},
		{"etc/weir/", "", 0o755, 0},
		{"tmp/", "", 0o1777, 0},
		{"var/", "", 0o755, 0},
		{"var/lib/", "", 0o755, 0},
		{"var/lib/weir/", "", 0o700, user},
		{"weir", string(binary), 0o755, 0},
	} {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
