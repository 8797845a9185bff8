namespace KvCluster.Wire;

/// <summary>Puts a stream before the body of each response. Thread-safe.</summary>
/// <param name="inner">Sends the requests; it is disposed with this.</param>
/// <param name="wrap">Makes the stream for a body, of which it disposes.</param>
internal abstract class BodyHandler(HttpMessageHandler inner, Func<Stream, Stream> wrap) : DelegatingHandler(inner)
{
    protected override async Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
    {
        var response = await base.SendAsync(request, cancellationToken).ConfigureAwait(false);
        var received = response.Content;
        // Disposing of the content disposes of the body, which ends the stream at the other side.
        var content = new StreamContent(wrap(await received.ReadAsStreamAsync(cancellationToken).ConfigureAwait(false)));
        foreach (var (name, values) in received.Headers.NonValidated)
            content.Headers.TryAddWithoutValidation(name, values);
        response.Content = content;
        return response;
    }
}
