using System.Globalization;
using System.Net;
using System.Net.Http.Headers;
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>Reads the status of a call from its response, without the parsing that HttpClient's own properties do.</summary>
internal static class ResponseStatus
{
    /// <summary>The status of a response without messages: not a gRPC response, or trailers only. Null if messages may follow.</summary>
    public static Status? OfHeaders(HttpResponseMessage response)
    {
        if (TryRead(response.Headers, out var status))
            return status;
        if (response.StatusCode != HttpStatusCode.OK)
            return new Status(StatusMapping.FromHttpStatus(response.StatusCode), $"The server answered with HTTP status {(int)response.StatusCode}.");
        if (response.Content.Headers.NonValidated.TryGetValues("Content-Type", out var contentType)
            && contentType.ToString().StartsWith("application/grpc", StringComparison.OrdinalIgnoreCase))
            return null;
        return new Status(StatusCode.Unknown, $"The server's answer is not gRPC: its content type is '{contentType}'.");
    }

    /// <summary>The status after the last message.</summary>
    public static Status OfTrailers(HttpResponseMessage response) =>
        TryRead(response.TrailingHeaders, out var status) ? status : new Status(StatusCode.Unknown, "The response ended without a status.");

    /// <summary>Headers or trailers as metadata, without those of the protocol.</summary>
    public static Metadata ToMetadata(HttpHeaders headers)
    {
        var metadata = new Metadata();
        foreach (var (key, values) in headers.NonValidated)
        {
            if (key.Equals("grpc-status", StringComparison.OrdinalIgnoreCase) || key.Equals("grpc-message", StringComparison.OrdinalIgnoreCase))
                continue;
            foreach (var value in values)
                BinaryHeader.AddTo(metadata, key, value);
        }
        return metadata;
    }

    private static bool TryRead(HttpHeaders headers, out Status status)
    {
        status = default;
        if (!headers.NonValidated.TryGetValues("grpc-status", out var code))
            return false;
        if (!int.TryParse(code.ToString(), NumberStyles.None, CultureInfo.InvariantCulture, out var number))
        {
            status = new Status(StatusCode.Unknown, $"The server's status '{code}' is not a number.");
            return true;
        }
        if (number == 0)
        {
            status = Status.DefaultSuccess;
            return true;
        }
        var detail = headers.NonValidated.TryGetValues("grpc-message", out var message) ? StatusMessage.Decode(message.ToString()) : "";
        status = new Status(number > (int)StatusCode.Unauthenticated ? StatusCode.Unknown : (StatusCode)number, detail);
        return true;
    }
}
