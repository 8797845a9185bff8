namespace KvCluster.Client.Transport;

/// <summary>
/// Adds the header by which a program authorizes itself, which it is asked for with each request. Only over TLS, so that nobody on the way reads it.
/// Thread-safe.
/// </summary>
/// <param name="inner">Sends the requests; it is disposed with this.</param>
/// <param name="authorization">Returns the header's value for an address; null: none.</param>
internal sealed class AuthorizationHandler(HttpMessageHandler inner, Func<Uri, CancellationToken, ValueTask<string?>> authorization) : DelegatingHandler(inner)
{
    protected override async Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
    {
        if (request.RequestUri is { } to && to.Scheme == Uri.UriSchemeHttps)
        {
            var address = new Uri(to.GetLeftPart(UriPartial.Authority));
            if (await authorization(address, cancellationToken).ConfigureAwait(false) is { } value)
                request.Headers.TryAddWithoutValidation("authorization", value);
        }
        return await base.SendAsync(request, cancellationToken).ConfigureAwait(false);
    }
}
