from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("tuned/model")
tokenizer = AutoTokenizer.from_pretrained("tuned/model")
ids = tokenizer.encode("Once", return_tensors="pt")
made = model.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0)
print(tokenizer.decode(made[0], skip_special_tokens=True))
