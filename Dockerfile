FROM oven/bun:1.4.5-slim AS build
WORKDIR /app
COPY package.json bun.lock bunfig.toml ./
RUN bun install --frozen-lockfile --production --ignore-scripts
COPY sql ./sql
COPY docs ./docs
COPY src ./src
ARG COMMIT=unknown
RUN bun run build --commit $COMMIT
RUN mkdir data

# The C library, certificates and one file: no shell, no packages. `nonroot` is user and group 65532.
FROM gcr.io/distroless/base-debian12:nonroot
ARG COMMIT=unknown
LABEL org.opencontainers.image.title=tollgate org.opencontainers.image.licenses=Apache-2.0 \
  org.opencontainers.image.version=0.2.0 org.opencontainers.image.revision=$COMMIT
COPY --from=build /app/dist/tollgate /usr/local/bin/tollgate
COPY --from=build --chown=nonroot:nonroot /app/data /data
USER nonroot
# The last one: src/doors/http/young-garbage.ts.
ENV HOST=0.0.0.0 PORT=3000 TOLLGATE_DATA_DIR=/data BUN_IDLE_GC_SECONDS=300
VOLUME /data
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["tollgate", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tollgate"]
CMD ["serve"]
