// The gRPC types are internal, so that a user's own Grpc.Core never collides with them. These assemblies see them.
using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("KvCluster.Grpc.Server")]
[assembly: InternalsVisibleTo("KvCluster.Serving")]
[assembly: InternalsVisibleTo("KvCluster.Proto")]
[assembly: InternalsVisibleTo("KvCluster.Client")]
[assembly: InternalsVisibleTo("kv")]
[assembly: InternalsVisibleTo("kv-node")]
[assembly: InternalsVisibleTo("kv-router")]
[assembly: InternalsVisibleTo("kv-local")]
[assembly: InternalsVisibleTo("KvCluster.Tests")]
[assembly: InternalsVisibleTo("KvCluster.Simulation")]
[assembly: InternalsVisibleTo("KvCluster.ClusterTests")]
[assembly: InternalsVisibleTo("KvCluster.Benchmarks")]
