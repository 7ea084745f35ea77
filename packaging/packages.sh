# shellcheck shell=bash
# Makes the .deb and the .rpm from the folder of a release archive, with the same bytes every time.
#
# Sourced by scripts/release, which sets version, repository, maintainer, OLDEST_GLIBC and SOURCE_DATE_EPOCH. Nothing is compiled here. dpkg-deb
# and rpmbuild pack a tree of files as it will be on the system. cargo-deb and cargo-generate-rpm would be two more
# tools to install, each with its own list of files.
# shellcheck disable=SC2154 # version, repository, maintainer

PACKAGE=bloomery-redis

# copy_documents FOLDER: copy the documents, and what their links lead to, from the current folder.
copy_documents() {
    cp -r --parents README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE-MIT LICENSE-APACHE \
        clients docs examples ops scripts/README.md "$1"
    rm -rf "$1/docs/site" # the documentation site is built from it
}

# lay_out ARCHIVE TREE LIBRARIES ZSH: put the package's files into TREE. The caller sets their modes. LIBRARIES and ZSH
# are the distribution's folders for libraries and for zsh completions.
lay_out() {
    local archive=$1 tree=$2 libraries=$3 zsh=$4 doc=$2/usr/share/doc/$PACKAGE server
    install -D --mode=755 "$archive/bloomery" "$tree/usr/bin/bloomery"
    install -D --mode=755 "$archive/libbloomery.so" "$tree$libraries/redis/modules/libbloomery.so"
    mkdir -p "$tree$libraries/valkey/modules"
    ln -s ../../redis/modules/libbloomery.so "$tree$libraries/valkey/modules/libbloomery.so"
    for server in redis valkey; do
        mkdir -p "$tree/etc/$server"
        sed "s|@SERVER@|$server|g; s|@MODULES@|$libraries/$server/modules|" packaging/bloomery.conf \
            >"$tree/etc/$server/bloomery.conf"
    done
    cp -r "$archive/share" "$tree/usr"
    gzip --no-name --best "$tree"/usr/share/man/man1/*.1
    mkdir -p "$tree$zsh" "$doc"
    [[ $zsh == /usr/share/zsh/site-functions ]] || {
        mv "$tree/usr/share/zsh/site-functions/_bloomery" "$tree$zsh"
        rmdir "$tree/usr/share/zsh/site-functions"
    }
    install -D --mode=644 "$archive/ops/systemd/bloomery-exporter.service" -t "$tree/usr/lib/systemd/system"
    (cd "$archive" && copy_documents "$doc" && cp THIRD-PARTY-LICENSES.txt RUST-LIBRARY-LICENSES.html "$doc")
    sed "s|\./libbloomery\.so|$libraries/redis/modules/libbloomery.so|" "$archive/redis.conf.example" \
        >"$doc/redis.conf.example"
}

# pack_deb ARCHIVE OUT ARCHITECTURE: make the .deb, for Debian and Ubuntu, in the folder OUT.
pack_deb() {
    local archive=$1 out=$2 architecture=$3 work tree
    work=$(mktemp --directory)
    tree=$work/tree
    lay_out "$archive" "$tree" /usr/lib /usr/share/zsh/vendor-completions
    # In this format, every line of a licence's text begins with a space, and an empty line is written as a dot.
    {
        sed '/@MIT@/,$d' packaging/deb/copyright
        sed '1,2d; s/^$/./; s/^/ /' LICENSE-MIT
    } >"$tree/usr/share/doc/$PACKAGE/copyright"
    mkdir "$tree/DEBIAN"
    (cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$work/md5sums"
    sed "s|@VERSION@|$version|; s|@ARCHITECTURE@|$architecture|; s|@GLIBC@|$OLDEST_GLIBC|
        s|@MAINTAINER@|$maintainer|; s|@REPOSITORY@|$repository|
        s|@KIBIBYTES@|$(find "$tree/usr" -type f -printf '%s\n' | awk '{ s += $1 } END { print int(s / 1024) }')|" \
        packaging/deb/control >"$tree/DEBIAN/control"
    mv "$work/md5sums" "$tree/DEBIAN"
    (cd "$tree" && find etc -type f -printf '/%p\n' | LC_ALL=C sort) >"$tree/DEBIAN/conffiles"
    install --mode=755 packaging/before-removal "$tree/DEBIAN/prerm"
    chmod -R u=rwX,go=rX "$tree"
    dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$tree" "$out/${PACKAGE}_${version}_$architecture.deb"
    rm -rf "$work"
}

# pack_rpm ARCHIVE OUT ARCHITECTURE: make the .rpm, for Fedora and its relatives, in the folder OUT.
pack_rpm() {
    local archive=$1 out=$2 architecture=$3 work tree file
    work=$(mktemp --directory) # rpmbuild doesn't support spaces in paths
    tree=$work/tree
    lay_out "$archive" "$tree" /usr/lib64 /usr/share/zsh/site-functions
    chmod -R u=rwX,go=rX "$tree"
    cat packaging/rpm/bloomery-redis.spec packaging/before-removal >"$work/$PACKAGE.spec"
    file=$PACKAGE-$version-1.$architecture.rpm
    # Nothing is stripped or compressed again, and nothing depends on this machine's name, time or defaults.
    rpmbuild -bb --quiet --target "$architecture-linux" \
        --define "version $version" --define "repository $repository" --define "maintainer $maintainer" \
        --define "tree $tree" --define "_topdir $work/rpmbuild" --define "_rpmdir $work" \
        --define "_rpmfilename $file" \
        --define '__os_install_post %{nil}' --define 'debug_package %{nil}' --define '_build_id_links none' \
        --define '_buildhost bloomery' --define '_binary_payload w9.xzdio' --define '_binary_filedigest_algorithm 8' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        --define 'source_date_epoch_from_changelog 0' "$work/$PACKAGE.spec"
    mv "$work/$file" "$out"
    rm -rf "$work"
}
