using System.Buffers.Text;
using System.Text;
using Grpc.Core;

namespace Grpc.Shared;

/// <summary>Received headers as metadata entries. Bytes are base64, accepted with or without padding.</summary>
internal static class BinaryHeader
{
    /// <summary>Adds a received header. A binary one may hold several values separated by commas; those that are not base64 are omitted.</summary>
    public static void AddTo(Metadata metadata, string key, string value)
    {
        if (!key.EndsWith(Metadata.BinaryHeaderSuffix, StringComparison.OrdinalIgnoreCase))
        {
            metadata.Add(Metadata.Entry.Received(key, value));
            return;
        }
        foreach (var part in value.Split(','))
        {
            if (TryDecode(part.AsSpan().Trim(), out var bytes))
                metadata.Add(Metadata.Entry.Received(key, bytes));
        }
    }

    private static bool TryDecode(ReadOnlySpan<char> text, out byte[] bytes)
    {
        var padded = Encoding.ASCII.GetBytes(text.ToString().TrimEnd('=').PadRight((text.TrimEnd('=').Length + 3) / 4 * 4, '='));
        bytes = new byte[Base64.GetMaxDecodedFromUtf8Length(padded.Length)];
        var isValid = Base64.DecodeFromUtf8(padded, bytes, out _, out var written) == System.Buffers.OperationStatus.Done;
        Array.Resize(ref bytes, written);
        return isValid;
    }
}
