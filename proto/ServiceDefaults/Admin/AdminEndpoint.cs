using Microsoft.AspNetCore.Http;

namespace KvCluster.ServiceDefaults.Admin;

/// <summary>Something that the admin port answers.</summary>
/// <param name="Method">GET, POST...</param>
/// <param name="Path">As "/metrics"; "/api/*" stands for all below /api/ that no other endpoint names better.</param>
/// <param name="Handle">Answers; on any thread, several at once. An exception becomes the status 500 and a line in the log.</param>
internal sealed record AdminEndpoint(string Method, string Path, RequestDelegate Handle);
