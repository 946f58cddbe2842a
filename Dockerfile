# Builds the image from a clone in one step:
#
#   docker build -t llmgw:0.1.0 .
#
# The binary is static, and the image contains nothing else. docker/Dockerfile builds the same image around a binary that
# exists already; scripts/check-compose checks that both end alike. The build needs BuildKit or buildah with the Docker
# format (buildah bud --format docker): the OCI format has no healthcheck.
FROM rust:1.95.0-alpine AS build
RUN apk add --no-cache make musl-dev
WORKDIR /src
COPY . .
# The commit that the binary reports; .git is not part of the context.
ARG BUILD_COMMIT=""
RUN cargo build --locked --release --bin llmgw \
    && install -D target/release/llmgw /image/rootfs/llmgw \
    && install -d -m 1777 /image/rootfs/tmp \
    && install -d /image/rootfs/etc /image/state \
    && echo 'llmgw:x:65532:65532::/state:/llmgw' >/image/rootfs/etc/passwd \
    && echo 'llmgw:x:65532:' >/image/rootfs/etc/group \
    && touch /image/state/.keep

FROM scratch
COPY --from=build /image/rootfs/ /
# Must be the first instruction that creates /state: otherwise root owns it, and every new volume.
COPY --from=build --chown=65532:65532 /image/state /state
USER 65532:65532
ENV LLMGW_HOST=0.0.0.0 \
    LLMGW_PORT=8787 \
    LLMGW_STATE_DIR=/state
EXPOSE 8787
VOLUME /state
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/llmgw", "healthcheck"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/llmgw"]
CMD ["serve"]
