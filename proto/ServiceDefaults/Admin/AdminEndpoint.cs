using Microsoft.AspNetCore.Http;

namespace KvCluster.ServiceDefaults.Admin;

/// <summary>An endpoint of the admin port.</summary>
/// <param name="Method">GET, POST...</param>
/// <param name="Path">For example "/metrics". "/api/*" matches everything below /api/ that no other endpoint matches better.</param>
/// <param name="Handle">Answers a request, on any thread, several at once. An exception becomes the status 500 and a log message.</param>
internal sealed record AdminEndpoint(string Method, string Path, RequestDelegate Handle);
