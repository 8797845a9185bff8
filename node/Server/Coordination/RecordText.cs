using Google.Protobuf;

namespace KvCluster.Node.Coordination;

/// <summary>The coordinator's values: protobuf JSON with the proto's field names, readable with etcdctl. Fields that a newer version added are passed over.</summary>
internal static class RecordText
{
    private static readonly JsonFormatter Formatter = new(JsonFormatter.Settings.Default.WithPreserveProtoFieldNames(true));
    private static readonly JsonParser Parser = new(JsonParser.Settings.Default.WithIgnoreUnknownFields(true));

    public static string Format(IMessage record) => Formatter.Format(record);

    /// <exception cref="CoordinatorRecordException">Not a record of this type.</exception>
    public static T Parse<T>(string text)
        where T : IMessage, new()
    {
        try
        {
            return Parser.Parse<T>(text);
        }
        catch (Exception failure) when (failure is IOException or InvalidOperationException)
        {
            throw new CoordinatorRecordException(typeof(T).Name, text, failure);
        }
    }
}
